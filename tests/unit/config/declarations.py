"""A small algorithm's declaration, in the form that the built-in ones have."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rlframe.agents.families.off_policy import REPLAY_BUFFERS
from rlframe.config.common import CommonConfig
from rlframe.config.model import ModelConfig
from rlframe.config.options import option, section


class ToyConfig(CommonConfig):
    """Has every kind of key: numbers, choices, a reserved word, a private name, sections."""

    n_step: int = option(1, "Rewards summed.", unit="env steps", low=1, source="Sutton & Barto 2018, eq. 7.1")
    lambda_: float = option(1.0, "GAE parameter.", key="lambda", low=0, high=1)
    separate: bool = option(False, "Private switch.", key="_separate")
    hiddens: list[int] = option([256], "Layers of the head.", low=1)
    lr_schedule: Sequence[Sequence[float]] | None = option(None, "Points [env step, learning rate].")
    prioritized_replay: bool = option(True, "Sample by TD error.")
    worker_side_prioritization: bool = option(False, "Workers compute priorities.")
    sgd_minibatch_size: int = option(128, "Rows of a minibatch.", low=1)
    temperature: float = option(1.0, "A positive number.", above=0)
    replay_buffer_config: dict[Any, Any] | None = option(
        {"type": "LocalReplayBuffer", "capacity": 50_000}, "The replay buffer.", variants=REPLAY_BUFFERS
    )
    q_model: ModelConfig = section(ModelConfig, "Network of the critic.", key="Q_model", fcnet_activation="relu")

    new_defaults: ClassVar = {
        "num_workers": 0,
        "model": {"vf_share_layers": False},
        "exploration_config": {"type": "EpsilonGreedy", "final_epsilon": 0.02, "epsilon_timesteps": 10_000},
        "evaluation_config": {"explore": False},
    }

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if self.worker_side_prioritization and not self.prioritized_replay:
            yield "worker_side_prioritization needs prioritized_replay=True"
