"""SAC: an actor that maximises return and entropy, for continuous and discrete actions; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rlframe.agents.families.off_policy import NetworkSectionsConfig, ReplayedActorCriticConfig, replay_plan
from rlframe.config.declaration import Section
from rlframe.config.options import UnsupportedValue, option, section
from rlframe.execution.iterators import LocalIterator
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class LearningRatesConfig(Section):
    """Learning rates of SAC's optimisers, each an Adam."""

    actor_learning_rate: float = option(3e-4, "That of the actor.", low=0, log=True)
    critic_learning_rate: float = option(3e-4, "That of the critics.", low=0, log=True)
    entropy_learning_rate: float = option(3e-4, "That of the temperature α; 0 keeps initial_alpha.", low=0, log=True)


class SACConfig(ReplayedActorCriticConfig, NetworkSectionsConfig):
    """Keys of SAC (Haarnoja et al. 2018), of TQC's critics and of CrossQ."""

    unsupported: ClassVar[Any] = {
        **ReplayedActorCriticConfig.unsupported,
        "_use_beta_distribution": UnsupportedValue(bool, "actions in bounds are squashed Gaussians; leave it out"),
    }
    new_defaults = {  # noqa: RUF012
        "timesteps_per_iteration": 100,
        "replay_buffer_config": {"capacity": 1_000_000},
        "prioritized_replay": False,
        "use_huber": True,
    }

    # Networks
    n_critics: int | None = option(
        None, "Critics of which targets take the smallest value; None is 2 with twin_q, else 1.", low=1
    )
    n_quantiles: int = option(
        1, "Quantiles of the return that each critic learns; 1 learns its mean.", low=1,
        source="Kuznetsov et al. 2020 (TQC)",
    )  # fmt: skip
    top_quantiles_to_drop: int = option(
        2, "With n_quantiles > 1: largest quantiles, for each critic, that targets leave out.", low=0,
        source="Kuznetsov et al. 2020 (TQC)",
    )  # fmt: skip
    critic_batch_norm: bool = option(
        False, "Critics have batch renormalisation, and see present and next state in one batch.",
        source="Bhatt et al. 2024 (CrossQ)",
    )  # fmt: skip
    use_target_network: bool = option(
        True, "Targets come from copies that follow the critics by tau; False takes the critics themselves, as CrossQ.",
        source="Bhatt et al. 2024 (CrossQ)",
    )  # fmt: skip

    # Entropy
    initial_alpha: float = option(1.0, "Weight of the entropy at the beginning; 0 stays 0.", low=0)
    target_entropy: float | Literal["auto"] | None = option(
        "auto",
        "Entropy that the weight is adapted to; 'auto' or None is minus the number of actions' components, and for n "
        "discrete actions 0.98 ln n.",
        unit="nats",
        wanted="a number, 'auto' or None (nats)",
        source="Haarnoja et al. 2018b, section 5; Christodoulou 2019",
    )

    # Learning
    optimization: LearningRatesConfig = section(LearningRatesConfig, "Learning rates.")
    deterministic_loss: bool = option(
        False, "For debugging: losses take the mean action instead of a sample.", key="_deterministic_loss",
        tunable=False,
    )  # fmt: skip
    use_beta_distribution: bool = option(False, "RLlib's Beta-distributed actions.", key="_use_beta_distribution")
    use_state_preprocessor: bool | Literal[-1] = option(
        -1, "Old key without effect: Q_model and policy_model see preprocessed observations.", deprecated=True
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.n_critics == 1 and self.twin_q:
            yield "n_critics=1 with twin_q=True: set twin_q=False for one critic"
        if self.n_quantiles > 1 and self.top_quantiles_to_drop >= self.n_quantiles:
            yield (
                f"top_quantiles_to_drop={self.top_quantiles_to_drop} must be smaller than n_quantiles="
                f"{self.n_quantiles}: targets need what is left"
            )
        if self.critic_batch_norm and self.Q_model.custom_model is not None:
            yield "critic_batch_norm=True normalises built-in critics only; leave out Q_model.custom_model or it"
        if self.critic_batch_norm and self.has_memory():
            yield "critic_batch_norm=True would take its statistics of padded sequences; leave it out, or the memory"
        if self.exploration_config.get("type") == "ParameterNoise":
            yield "exploration_config.type='ParameterNoise' is for deterministic policies; SAC's own actions are random"

    def remarks(self) -> Iterator[str]:
        """Yields remarks on keys that SAC does not read: programs hand whole configs over."""
        yield from super().remarks()
        defaults = self.defaults()
        unread = () if self.model.custom_model or self.has_memory() else ("fcnet_hiddens", "fcnet_activation")
        if self.lr != defaults["lr"]:
            yield f"lr={self.lr} has no effect on SAC; set optimization.actor_learning_rate and its siblings"
        for key in unread:
            value = getattr(self.model, key)
            if value != defaults["model"][key]:
                yield f"model.{key}={value!r} has no effect on SAC; set it in Q_model and policy_model"
        if not self.use_target_network and not self.critic_batch_norm:
            yield "use_target_network=False without critic_batch_norm=True: values hardly stay bounded"


def execution_plan(
    workers: WorkerSet, config: SACConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Alternates (1) sample and store with (2) replay, learn, re-prioritise, move the targets."""
    return replay_plan(workers, config, local_replay_buffer)


DEFAULT_CONFIG: dict[str, Any] = SACConfig.defaults()

SACTrainer = build_trainer(
    name="SAC",
    config_class=SACConfig,
    policies={
        "torch": "rlframe.agents.sac.sac_policy:SACTorchPolicy",
        "tf": "rlframe.agents.sac.sac_policy:SACTFPolicy",
    },
    execution_plan=execution_plan,
)
