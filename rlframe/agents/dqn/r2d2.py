"""R2D2: DQN with a memory that learns from replayed sequences, and values rescaled; config, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlframe.agents.dqn.dqn import DQNConfig, DQNTrainer
from rlframe.config.options import option


class R2D2Config(DQNConfig):
    """Keys of R2D2 (Kapturowski et al. 2019); `model` needs a memory."""

    new_defaults = {  # noqa: RUF012
        "num_workers": 2,
        "batch_mode": "complete_episodes",
        "train_batch_size": 1280,
        "lr": 1e-4,
        "gamma": 0.997,
        "adam_epsilon": 1e-3,
        "target_network_update_freq": 2500,
        "replay_sequence_length": -1,
        "replay_buffer_config": {"type": "LocalReplayBuffer", "capacity": 100_000},
        "prioritized_replay": False,
    }

    use_h_function: bool = option(
        True, "Values are learned as h(value), which makes large ones small.",
        source="Pohlen et al. 2018, section 3.2",
    )  # fmt: skip
    h_function_epsilon: float = option(
        1e-3, "ε of h(x) = sign(x) (√(|x| + 1) − 1) + ε x.", low=0, source="Pohlen et al. 2018, section 3.2"
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.batch_mode != "complete_episodes":
            yield (
                f"batch_mode={self.batch_mode!r}: R2D2's sequences are cut from whole episodes; set 'complete_episodes'"
            )
        if self.use_h_function and self.num_atoms > 1:
            yield f"use_h_function=True rescales expected values, not num_atoms={self.num_atoms}; set one of them off"
        if self.worker_side_prioritization:
            yield "worker_side_prioritization=True computes TD errors of single rows, but R2D2 replays sequences"


DEFAULT_CONFIG: dict[str, Any] = R2D2Config.defaults()

R2D2Trainer = DQNTrainer.with_updates(
    name="R2D2",
    config_class=R2D2Config,
    policies={
        "torch": "rlframe.agents.dqn.r2d2_policy:R2D2TorchPolicy",
        "tf": "rlframe.agents.dqn.r2d2_policy:R2D2TFPolicy",
    },
)
