"""RNNSAC: SAC behind a memory, which learns from replayed sequences; config, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from rlframe.agents.sac.sac import SACConfig, SACTrainer
from rlframe.config.model import ModelConfig
from rlframe.config.options import section
from rlframe.config.unsupported import UNSUPPORTED

_UNBUILT = ("_use_default_native_models",)


class RNNSACConfig(SACConfig):
    """Keys of RNNSAC: SAC's, with a memory in `Q_model` or `policy_model`."""

    unsupported: ClassVar[Any] = {
        **SACConfig.unsupported,
        **{f"{part}.{key}": UNSUPPORTED[f"model.{key}"] for part in ("Q_model", "policy_model") for key in _UNBUILT},
    }
    new_defaults = {"batch_mode": "complete_episodes", "replay_sequence_length": -1}  # noqa: RUF012

    Q_model: ModelConfig = section(
        ModelConfig, "Options of each critic's network, and of the memory.", fcnet_activation="relu",
        post_fcnet_activation=None,
    )  # fmt: skip
    policy_model: ModelConfig = section(
        ModelConfig, "Options of the actor's network; of the memory, where Q_model has none.", fcnet_activation="relu",
        post_fcnet_activation=None,
    )  # fmt: skip

    def has_memory(self) -> bool:
        """Whether a section says that policies have memory; models of the user's own say so themselves."""
        return any(part.use_lstm or part.use_attention for part in (self.Q_model, self.policy_model, self.model))

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.batch_mode != "complete_episodes":
            yield (
                f"batch_mode={self.batch_mode!r}: RNNSAC's sequences are cut from whole episodes; set "
                "'complete_episodes'"
            )

    def remarks(self) -> Iterator[str]:
        """Yields remarks on keys of a second memory."""
        yield from super().remarks()
        if not (self.Q_model.use_lstm or self.Q_model.use_attention):
            return
        for key in ("lstm_cell_size", "lstm_use_prev_action", "lstm_use_prev_reward", "attention_dim"):
            one, other = getattr(self.Q_model, key), getattr(self.policy_model, key)
            remembers = self.policy_model.use_lstm or self.policy_model.use_attention
            if remembers and one != other:
                yield (
                    f"policy_model.{key}={other!r} has no effect beside Q_model.{key}={one!r}: actor and critics share "
                    "one memory, that of Q_model"
                )


DEFAULT_CONFIG: dict[str, Any] = RNNSACConfig.defaults()

RNNSACTrainer = SACTrainer.with_updates(
    name="RNNSAC",
    config_class=RNNSACConfig,
    policies={
        "torch": "rlframe.agents.sac.rnnsac_policy:RNNSACTorchPolicy",
        "tf": "rlframe.agents.sac.rnnsac_policy:RNNSACTFPolicy",
    },
)
