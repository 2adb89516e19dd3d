"""Learner steps of PyTorch policies whose programs compute or apply gradients themselves.

RLlib's learner step called `policy.compute_gradients(batch)`, which left the gradients in the parameters, and then
`policy.apply_gradients(...)`. Programs override either, or give `compute_gradients_fn` or `apply_gradients_fn`: natural
gradients with a line search, updates of one agent after the other, delays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.users_code import overridden_by_user
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY
from rlframe.utils.threads import blas_in_one_thread

_COMPUTE, _APPLY = "compute_gradients", "apply_gradients"


class GradientsInPlace:
    """What `apply_gradients` gets in a learner step: the gradients are in the parameters, and optimisers may step.

    Iterating gives them, tensors, None where a parameter has none, in the order of the model's parameters. All are
    equal: RLlib's code asks `gradients == _directStepOptimizerSingleton`.

    Args:
        policy: The policy that learns; None for one to compare with.
        stepping: Indices of the optimisers that are due.
    """

    def __init__(self, policy: Any = None, stepping: tuple[int, ...] = ()) -> None:
        self._policy, self.stepping = policy, stepping

    def __iter__(self) -> Iterator[Any]:
        return iter([] if self._policy is None else [weight.grad for weight in self._policy.model.parameters()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradientsInPlace)

    def __hash__(self) -> int:
        return hash(GradientsInPlace)


DirectStepOptimizer = GradientsInPlace
_directStepOptimizerSingleton = GradientsInPlace()  # noqa: N816 - RLlib's name


def has_own_gradients(cls: type[Any]) -> bool:
    """Returns whether a program computes or applies a policy's gradients itself."""
    return any(overridden_by_user(cls, name) for name in (_COMPUTE, _APPLY))


def update_by_own_gradients(policy: Any, samples: SampleBatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Does an update by `compute_gradients` and `apply_gradients`, and returns statistics and further fetches.

    Args:
        policy: One of which `has_own_gradients` is true.
        samples: The train batch.
    """
    if overridden_by_user(type(policy), _COMPUTE):
        policy._computed_for = tuple(range(len(policy._optimizers)))  # unless the built-in method is called, too
        policy.model.train()
        policy._start_update()
        policy._threads.use(samples.count)
        policy._is_updating = True
        try:
            _, info = policy.compute_gradients(samples)
        finally:
            policy._is_updating = False
        policy.apply_gradients(GradientsInPlace(policy, policy._computed_for))
        told = {name: value for name, value in (info or {}).items() if name not in ("custom_metrics", "model")}
        return dict(told.pop(LEARNER_STATS_KEY, {})), told
    stats: dict[str, Any] = {"allreduce_latency": 0.0}
    batch = policy._batch_to_learn(samples)
    with blas_in_one_thread():
        for stepping in policy._backward(batch, samples, stats):
            policy.apply_gradients(GradientsInPlace(policy, tuple(stepping)))
    stats.update(policy.extra_grad_info(batch))
    return stats, policy.extra_compute_grad_fetches()
