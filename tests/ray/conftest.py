"""The runtime that these files share, and what its workers need not load."""

import pytest

from tests.helpers.ray_runtime import runtime_of_tests


@pytest.fixture(scope="package")
def ray_runtime():
    """One for all files: a start takes seconds."""
    yield from runtime_of_tests()


@pytest.fixture(scope="module", autouse=True)
def _what_the_file_defines_is_sent_whole(request):
    """Sends the file's classes and functions to workers, instead of where they stand.

    A worker that looked them up would import the file, and with it Tune and PyTorch: 1.2 and 2.0 seconds of a processor
    for each, where its own start takes 0.7.
    """
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
