"""The keys of `exploration_config`, one declaration for each class of exploration."""

from typing import Any, ClassVar

from rlframe.config.declaration import Section, Variants, option

EXPLORATIONS = Variants()
"""The declared explorations by the name that stands in `type`."""

_SCHEDULE = "a schedule, a number, [[time step, value], ...] or None"
_KIND = "Class of exploration: a name, a dotted path or a class."


def _schedule_rule(value: Any) -> str | None:
    """Wants what a schedule can be made of; see `rlframe.utils.schedules.make_schedule`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if value is None or number or isinstance(value, list | tuple | dict) or callable(value) else _SCHEDULE


@EXPLORATIONS.add("StochasticSampling")
class StochasticSamplingConfig(Section):
    """Samples from the policy's distribution."""

    type: Any = option("StochasticSampling", _KIND)
    random_timesteps: int = option(0, "Uniformly random actions at the beginning.", unit="env steps", low=0)


@EXPLORATIONS.add("Random")
class RandomConfig(Section):
    """Samples uniformly from the action space."""

    type: Any = option("Random", _KIND)


@EXPLORATIONS.add("EpsilonGreedy")
class EpsilonGreedyConfig(Section):
    """Acts at random with probability epsilon, else greedily."""

    type: Any = option("EpsilonGreedy", _KIND)
    initial_epsilon: float = option(1.0, "Epsilon at the beginning; what is above 1 acts as 1.", low=0)
    final_epsilon: float = option(0.05, "Epsilon from `epsilon_timesteps` on.", low=0, high=1)
    epsilon_timesteps: int = option(100_000, "Length of the linear descent.", unit="env steps", low=0)
    epsilon_schedule: Any = option(
        None,
        "Schedule of epsilon by env step, in place of the three above.",
        rule=_schedule_rule,
        wanted=_SCHEDULE,
    )


@EXPLORATIONS.add("PerWorkerEpsilonGreedy")
class PerWorkerEpsilonGreedyConfig(EpsilonGreedyConfig):
    """Gives every worker a constant epsilon of its own."""

    new_defaults: ClassVar[Any] = {"type": "PerWorkerEpsilonGreedy"}


@EXPLORATIONS.add("SoftQ")
class SoftQConfig(Section):
    """Samples from the Boltzmann distribution of the action values."""

    type: Any = option("SoftQ", _KIND)
    temperature: float = option(1.0, "Divisor of the values; small is greedy.", above=0)
    random_timesteps: int = option(0, "Uniformly random actions at the beginning.", unit="env steps", low=0)


@EXPLORATIONS.add("GaussianNoise")
class GaussianNoiseConfig(Section):
    """Adds scaled normal noise to deterministic actions."""

    type: Any = option("GaussianNoise", _KIND)
    random_timesteps: int = option(1000, "Uniformly random actions at the beginning.", unit="env steps", low=0)
    stddev: float = option(0.1, "Standard deviation of the noise at scale 1.", low=0)
    initial_scale: float = option(1.0, "Scale at the beginning.", low=0)
    final_scale: float = option(0.02, "Scale at the end.", low=0)
    scale_timesteps: int = option(
        10_000, "Length of the linear change of scale, which begins behind random_timesteps.", unit="env steps", low=0
    )
    scale_schedule: Any = option(
        None,
        "Schedule of the scale by env step, in place of the three above.",
        rule=_schedule_rule,
        wanted=_SCHEDULE,
    )


@EXPLORATIONS.add("PerWorkerGaussianNoise")
class PerWorkerGaussianNoiseConfig(GaussianNoiseConfig):
    """Gives every worker a constant scale of its own."""

    new_defaults: ClassVar[Any] = {"type": "PerWorkerGaussianNoise"}


@EXPLORATIONS.add("OrnsteinUhlenbeckNoise")
class OrnsteinUhlenbeckNoiseConfig(GaussianNoiseConfig):
    """Adds noise that is correlated in time to deterministic actions."""

    ou_theta: float = option(0.15, "Rate at which the noise returns to zero.", low=0)
    ou_sigma: float = option(0.2, "Scale of the normal step of the noise.", low=0)
    ou_base_scale: float = option(0.1, "Factor on the noise, beside the scheduled scale.", low=0)

    new_defaults: ClassVar[Any] = {"type": "OrnsteinUhlenbeckNoise"}


@EXPLORATIONS.add("PerWorkerOrnsteinUhlenbeckNoise")
class PerWorkerOrnsteinUhlenbeckNoiseConfig(OrnsteinUhlenbeckNoiseConfig):
    """Gives every worker a constant scale of its own."""

    new_defaults: ClassVar[Any] = {"type": "PerWorkerOrnsteinUhlenbeckNoise"}


@EXPLORATIONS.add("ParameterNoise")
class ParameterNoiseConfig(Section):
    """Adds noise to the weights, a new draw for each episode."""

    type: Any = option("ParameterNoise", _KIND)
    initial_stddev: float = option(1.0, "Standard deviation of the noise at the beginning.", above=0)
    random_timesteps: int = option(10_000, "Uniformly random actions at the beginning.", unit="env steps", low=0)
    sub_exploration: dict[Any, Any] | None = option(
        None, "Exploration on top of the noisy weights; None chooses by action space.", variants=EXPLORATIONS
    )


@EXPLORATIONS.add("Curiosity")
class CuriosityConfig(Section):
    """Rewards transitions that a learned model did not foresee."""

    type: Any = option("Curiosity", _KIND)
    feature_dim: int = option(288, "Size of the feature space.", low=1)
    feature_net_config: dict[Any, Any] | None = option(None, "Model options of the feature network.")
    inverse_net_hiddens: list[int] = option([256], "Layers of the inverse model.", low=1)
    inverse_net_activation: str = option("relu", "Activation of the inverse model.")
    forward_net_hiddens: list[int] = option([256], "Layers of the forward model.", low=1)
    forward_net_activation: str = option("relu", "Activation of the forward model.")
    beta: float = option(0.2, "Weight of the forward loss against the inverse loss.", low=0, high=1)
    eta: float = option(1.0, "Factor on the intrinsic reward.", low=0)
    lr: float = option(1e-3, "Learning rate of the curiosity models.", low=0)
    sub_exploration: dict[Any, Any] | None = option(None, "Exploration of the actions.", variants=EXPLORATIONS)


@EXPLORATIONS.add("RE3")
class RE3Config(Section):
    """Rewards states that are far from those seen, in a random embedding."""

    type: Any = option("RE3", _KIND)
    embeds_dim: int = option(128, "Size of the embedding.", low=1)
    encoder_net_config: dict[Any, Any] | None = option(None, "Model options of the random encoder.")
    beta: float = option(0.2, "Factor on the intrinsic reward.", low=0)
    beta_schedule: str = option("constant", "How beta changes.", choices=("constant", "linear_decay"))
    rho: float = option(0.1, "Rate at which `linear_decay` lowers beta.", unit="per iteration", low=0, high=1)
    k_nn: int = option(50, "Which of the nearest states counts.", low=1)
    memory: int = option(4000, "States that distances are measured to.", unit="env steps", low=1)
    sub_exploration: dict[Any, Any] | None = option(None, "Exploration of the actions.", variants=EXPLORATIONS)


@EXPLORATIONS.add("RND")
class RNDConfig(Section):
    """Rewards states whose features of a random network a second network does not yet foretell."""

    type: Any = option("RND", _KIND)
    embed_dim: int = option(128, "Size of the features.", low=1)
    net_config: dict[Any, Any] | None = option(None, "Model options of both networks.")
    eta: float = option(1.0, "Factor on the intrinsic reward.", low=0)
    lr: float = option(1e-4, "Learning rate of the second network.", low=0)
    sub_exploration: dict[Any, Any] | None = option(None, "Exploration of the actions.", variants=EXPLORATIONS)


@EXPLORATIONS.add("ThompsonSampling")
class ThompsonSamplingConfig(Section):
    """Takes the bandit arm that is best for weights drawn from the posterior."""

    type: Any = option("ThompsonSampling", _KIND)


@EXPLORATIONS.add("UpperConfidenceBound")
class UpperConfidenceBoundConfig(Section):
    """Takes the bandit arm with the highest confidence bound."""

    type: Any = option("UpperConfidenceBound", _KIND)
