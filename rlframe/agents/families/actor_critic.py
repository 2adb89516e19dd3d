"""Algorithms with an actor and a critic: the keys that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlframe.agents.families.optimization import LearningRateScheduleConfig
from rlframe.config.common import CommonConfig
from rlframe.config.options import option


class AdvantageConfig(CommonConfig):
    """How advantages are estimated."""

    use_critic: bool = option(True, "Advantages are measured against values.")
    use_gae: bool = option(True, "Generalised advantage estimates.", source="Schulman et al. 2016")
    lambda_: float = option(1.0, "Decay of the advantages' trace.", low=0, high=1, key="lambda")

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.estimates_advantages() and self.use_gae and not self.use_critic:
            yield "use_gae=True needs use_critic=True: the estimates are made of values"

    def estimates_advantages(self) -> bool:
        """Whether workers estimate advantages, so that `use_gae` is read."""
        return True


class ReturnsOfWholeEpisodesConfig(AdvantageConfig):
    """Returns that are no generalised estimates are those of whole episodes."""

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.batch_mode == "truncate_episodes" and not self.use_gae:
            yield "use_gae=False needs batch_mode='complete_episodes': returns need the ends of episodes"


class EntropyBonusConfig(CommonConfig):
    """A bonus for policies that are not certain."""

    entropy_coeff: float = option(0.01, "Weight of the entropy bonus.", low=0)
    entropy_coeff_schedule: Sequence[Sequence[float]] | float | None = option(
        None, "Points [env step, weight]; or a step at which the weight reaches 0.", wanted="a list of [step, value]"
    )


class LossWeightsConfig(EntropyBonusConfig, LearningRateScheduleConfig):
    """Weights of the terms of a loss of actor and critic."""

    vf_loss_coeff: float = option(0.5, "Weight of the value loss.", low=0)


class ActorCriticConfig(AdvantageConfig, LossWeightsConfig):
    """Advantages, and the weights of a loss's terms."""


class ActionBoundConfig(CommonConfig):
    """Gaussian means are held near the action bounds."""

    action_bound_coeff: float = option(
        0.0,
        "Weight of the squared distance, in half widths of the action bounds, of Gaussian means beyond them.",
        low=0,
    )


class ClippedSurrogateConfig(CommonConfig):
    """The policy stays near the one that acted (Schulman et al. 2017)."""

    clip_param: float = option(
        0.3, "ε: how far the probability ratio counts.", above=0, infinite=True, source="Schulman et al. 2017, eq. 7"
    )
    kl_coeff: float = option(0.2, "Weight of the KL penalty at the start; 0 has none.", low=0)
    kl_target: float = option(0.01, "KL divergence that the penalty's weight is adapted to.", unit="nats", low=0)
