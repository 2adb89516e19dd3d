"""Property tests judge answers, not how busy the machine is."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

# The same examples each time, so that a change is judged by what it changed. `make search` looks for new ones.
settings.register_profile("rlframe", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("PROPERTY_PROFILE", "rlframe"))


@pytest.fixture(autouse=True, scope="module")
def _collector_passes_over_what_stays():
    """Drawing examples runs the collector often, and a process that ran thousands of tests has millions of objects.

    A test of two seconds took minutes there.
    """
    gc.collect()
    gc.freeze()
