"""MADDPG: an actor for each agent, and critics that see what all agents see and do; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from rlframe.agents.families.off_policy import DeterministicActorConfig, replay_plan
from rlframe.agents.maddpg.joint_steps import ShareJointSteps, check_agents
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet

#: Options of `model` that build networks; MADDPG's are built from its own keys.
_NETWORK_KEYS = (
    *("fcnet_hiddens", "fcnet_activation", "conv_filters", "post_fcnet_hiddens", "use_lstm", "use_attention"),
    *("custom_model", "custom_model_config", "custom_action_dist", "free_log_std", "no_final_linear"),
)


class MADDPGConfig(DeterministicActorConfig):
    """Keys of MADDPG."""

    new_defaults = {  # noqa: RUF012
        "num_workers": 1,
        "gamma": 0.95,
        "rollout_fragment_length": 100,
        "train_batch_size": 1024,
        "learning_starts": 25_600,
        "target_network_update_freq": 0,
        "tau": 0.01,
        "actor_hiddens": [64, 64],
        "critic_hiddens": [64, 64],
        "actor_lr": 1e-2,
        "critic_lr": 1e-2,
        "replay_buffer_config": {"capacity": 1_000_000},
        "multiagent": {"replay_mode": "lockstep"},
    }

    agent_id: int | None = option(
        None, "Number of the agent that a policy acts for, from 0; it belongs in each policy's own config.", low=0
    )
    use_local_critic: bool = option(False, "The critic sees what the policy's own agent sees and does; this is DDPG.")
    use_state_preprocessor: bool = option(False, "Refused: the actor's hidden layers are actor_hiddens.")
    good_policy: str = option("maddpg", "Only 'maddpg'; see use_local_critic.", choices=("maddpg", "ddpg"))
    adv_policy: str = option("maddpg", "Only 'maddpg'; see use_local_critic.", choices=("maddpg", "ddpg"))
    actor_feature_reg: float | None = option(
        0.001, "Weight of the actor's mean squared output in its loss; None or 0 is without.", low=0
    )
    grad_norm_clipping: float | None = option(
        0.5, "Largest L2 norm of the gradient of each weight array; None does not clip.", above=0
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        yield from _table_faults(self.multiagent.policies)
        if self.agent_id is not None:
            yield f"agent_id={self.agent_id} belongs in the config of a policy: PolicySpec(config={{'agent_id': 0}})"
        if self.multiagent.replay_mode != "lockstep":
            yield (
                f"multiagent.replay_mode={self.multiagent.replay_mode!r}: the critics need the steps of all agents "
                "together; leave it at 'lockstep'"
            )
        for key in ("good_policy", "adv_policy"):
            if getattr(self, key) != "maddpg":
                yield (
                    f"{key}={getattr(self, key)!r}: nobody says which agents these are; set use_local_critic=True in "
                    "the configs of their policies"
                )
        if self.use_state_preprocessor:
            yield "use_state_preprocessor=True is not available; set actor_hiddens and critic_hiddens instead"
        if self.exploration_config.get("type") == "ParameterNoise":
            yield "exploration_config.type='ParameterNoise' is for Q-learning; leave exploration_config out"
        yield from self._unread_faults()

    def _unread_faults(self) -> Iterator[str]:
        """Yields keys of other algorithms that were set and would have no effect."""
        defaults = self.defaults()
        if self.lr != defaults["lr"]:
            yield f"lr={self.lr} is not MADDPG's; set actor_lr and critic_lr"
        for key in _NETWORK_KEYS:
            value = getattr(self.model, key)
            if value != defaults["model"][key]:
                yield (
                    f"model.{key}={value!r} is not MADDPG's; set actor_hiddens, actor_hidden_activation, "
                    "critic_hiddens and critic_hidden_activation"
                )


def _table_faults(policies: Any) -> Iterator[str]:
    """Yields what is wrong with the agents that a table of policies names."""
    wanted = (
        "wanted a policy for each agent, numbered from 0: "
        "{'first': PolicySpec(config={'agent_id': 0}), 'second': PolicySpec(config={'agent_id': 1})}"
    )
    if not isinstance(policies, Mapping) or not policies:
        yield f"multiagent.policies={policies!r}: {wanted}"
        return
    configs = {pid: spec[3] if isinstance(spec, (tuple, list)) else getattr(spec, "config", None)
               for pid, spec in policies.items()}  # fmt: skip
    given = {pid: (config or {}).get("agent_id") for pid, config in configs.items()}
    numbers = [agent for agent in given.values() if type(agent) is int]
    if sorted(numbers) != list(range(len(policies))):
        yield f"multiagent.policies have agent_id {given}, {wanted}"


def execution_plan(
    workers: WorkerSet, config: MADDPGConfig, *, local_replay_buffer: LocalReplayBuffer
) -> LocalIterator[Any]:
    """Alternates (1) sample and store with (2) replay joint steps, learn, move the targets."""
    return replay_plan(workers, config, local_replay_buffer, before_learning=[ShareJointSteps(workers)])


class FixedAgents:
    """A trainer whose policies are there from the beginning, and stay."""

    def add_policy(self, policy_id: str, *_: Any, **__: Any) -> NoReturn:
        """Raises a ValueError."""
        raise ValueError(self._refusal(policy_id))

    def remove_policy(self, policy_id: str = "default_policy", **_: Any) -> NoReturn:
        """Raises a ValueError."""
        raise ValueError(self._refusal(policy_id))

    @staticmethod
    def _refusal(policy_id: str) -> str:
        return (
            f"policy_id={policy_id!r}: MADDPG's critics are built for what all agents see and do, and for as many of "
            "them as there are; name all policies in multiagent.policies, and make a new trainer for other agents"
        )


DEFAULT_CONFIG: dict[str, Any] = MADDPGConfig.defaults()

MADDPGTrainer = build_trainer(
    name="MADDPG",
    config_class=MADDPGConfig,
    policies={
        "torch": "rlframe.agents.maddpg.maddpg_policy:MADDPGTorchPolicy",
        "tf": "rlframe.agents.maddpg.maddpg_policy:MADDPGTFPolicy",
    },
    after_init=check_agents,
    mixins=[FixedAgents],
    execution_plan=execution_plan,
)
