"""EnvContext: a dict with a place."""

from __future__ import annotations

import copy
import pickle

import pytest

from rlframe.env import EnvContext


def test_context_reads_like_a_dict_and_knows_its_place():
    context = EnvContext({"size": 5}, worker_index=2, vector_index=3, remote=True, num_workers=4)
    assert context == {"size": 5}
    assert {**context} == {"size": 5}
    assert (context.worker_index, context.vector_index, context.remote, context.num_workers) == (2, 3, True, 4)
    assert "worker_index=2" in repr(context)


def test_context_without_arguments_is_empty_and_local():
    context = EnvContext()
    assert context == {}
    assert (context.worker_index, context.vector_index, context.remote, context.num_workers) == (0, 0, False, None)


def test_copy_with_overrides_changes_only_what_is_given():
    context = EnvContext({"a": 1}, 1, 2, False, 3)
    other = context.copy_with_overrides(vector_index=0, remote=True)
    assert (other, other.worker_index, other.vector_index, other.remote, other.num_workers) == ({"a": 1}, 1, 0, True, 3)
    assert context.copy_with_overrides(env_config={}) == {}
    other["a"] = 2
    assert context["a"] == 1
    assert (context.vector_index, context.remote) == (2, False)


@pytest.mark.parametrize(
    "through", [copy.copy, copy.deepcopy, EnvContext.copy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_context_copied_keeps_type_and_place(through):
    other = through(EnvContext({"a": [1]}, 1, 2, True, 3))
    assert type(other) is EnvContext
    assert (other, other.worker_index, other.vector_index, other.remote, other.num_workers) == (
        {"a": [1]},
        1,
        2,
        True,
        3,
    )


def test_set_defaults_keeps_what_is_there():
    context = EnvContext({"a": 1})
    context.set_defaults({"a": 2, "b": 3})
    assert context == {"a": 1, "b": 3}
