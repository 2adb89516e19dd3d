"""Actions of users' TensorFlow distributions, drawn in the traced function that computes their inputs."""

from __future__ import annotations

import logging
from typing import Any

from rlframe.exploration.exploration import StochasticSampling
from rlframe.utils.quiet_tf import tf

_LOGGER = logging.getLogger("rlframe")


def draw(distribution: Any, explore: bool) -> tuple[Any, Any]:
    """Returns actions [B, ...] and their log-likelihoods [B]; deterministic ones, and zeros, without `explore`."""
    if explore:
        return distribution.sample(), tf.cast(distribution.sampled_action_logp(), tf.float32)
    actions = distribution.deterministic_sample()
    return actions, tf.zeros(tf.shape(tf.nest.flatten(actions)[0])[:1])


class TracedDraws:
    """Decides whether a policy's actions are drawn in its traced forward pass.

    A distribution with networks of its own (autoregressive actions) takes ten times as long operation by operation.
    As in RLlib's graphs, Python runs once then: `framework="tf2"` without `eager_tracing` keeps to single operations.

    Args:
        policy: A `TFPolicy`.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._allowed = policy.config["framework"] == "tf" or bool(policy.config.get("eager_tracing"))

    def may(self, step: int, *, explore: bool) -> bool:
        """Returns whether the exploration does nothing but draw from the distribution at a time step."""
        exploration = self._policy.exploration
        return (
            self._allowed
            and type(exploration) is StochasticSampling
            and not (explore and step < exploration.random_timesteps)
        )

    def call(self, traced: Any, given: tuple[Any, ...], keywords: dict[str, Any], *, draws: bool) -> dict[str, Any]:
        """Calls the traced forward pass, with actions if `draws`; without them where they cannot be traced."""
        if draws:
            try:
                made: dict[str, Any] = traced(*given, **keywords, draws=True)
            except Exception as error:  # it comes again, operation by operation, if it is no matter of tracing
                self._allowed = False
                _LOGGER.warning("actions are drawn operation by operation, their distribution is not traced: %s", error)
            else:
                return made
        return traced(*given, **keywords)  # type: ignore[no-any-return]
