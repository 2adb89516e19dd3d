"""What a `RolloutWorker` is built of: its environments in slots, what samples in them, its policies' spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from rlframe.config.common import CommonConfig
from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.env.adapt import warn_unseedable
from rlframe.env.base_env import BaseEnv
from rlframe.env.checks import check_observation, check_spaces
from rlframe.env.env_context import EnvContext
from rlframe.env.external_env import ExternalEnv
from rlframe.env.sub_environments import SlotEnvironments
from rlframe.evaluation.agent_mapping import AgentMapping
from rlframe.evaluation.callbacks import call_hook
from rlframe.evaluation.policy_table import has_several, space_for
from rlframe.evaluation.sampling.external import ExternalRunner
from rlframe.evaluation.sampling.loop import Hooks, RunnerSettings
from rlframe.evaluation.sampling.multi_agent import MultiAgentRunner
from rlframe.evaluation.sampling.rollout import EnvSlot
from rlframe.evaluation.sampling.single_agent import EnvRunner
from rlframe.evaluation.sampling.vectorized import VectorRunner, make_vector_env
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import DrawnSeed, entropy_seed
from rlframe.utils.spaces.old_gym import convert_spaces

if TYPE_CHECKING:
    from rlframe.policy.policy_spec import PolicySpec

#: What RLlib's constructor took where a program that makes its workers by hand said nothing.
_CONSTRUCTOR_DEFAULTS = {"rollout_fragment_length": 100}
_CONSTRUCTOR_NAMES = {
    "num_envs": "num_envs_per_worker",
    "episode_horizon": "horizon",
    "model_config": "model",
    "input_creator": "input",
    "output_creator": "output",
    "extra_python_environs": "extra_python_environs_for_worker",
}
#: Arguments that stand in a config's `multiagent`.
_MULTIAGENT_NAMES = frozenset({"policy_mapping_fn", "policies_to_train", "observation_fn", "count_steps_by"})
#: Arguments whose None said nothing, and those that nothing here is made of.
_UNSAID_BY_NONE = frozenset({"env_config", "model_config", "log_level", "extra_python_environs"})
_WITHOUT_MEANING = frozenset({"tf_session_creator", "monitor_path"})


def with_overrides(
    config: Mapping[str, Any], overrides: Mapping[str, Any], worker_index: int, num_workers: int
) -> CommonConfig:
    """Returns the worker's config: the trainer's with RLlib's constructor arguments laid on it."""
    made = {**_CONSTRUCTOR_DEFAULTS, **config}
    for name, value in overrides.items():
        if name in _MULTIAGENT_NAMES:
            made["multiagent"] = {**(made.get("multiagent") or {}), name: value}
        elif name not in _WITHOUT_MEANING and not (value is None and name in _UNSAID_BY_NONE):
            made[_CONSTRUCTOR_NAMES.get(name, name)] = value
    made["worker_index"], made["num_workers"] = worker_index, num_workers
    return CommonConfig.view(made)


def make_slots(
    config: CommonConfig,
    context: EnvContext,
    creator: Callable[[EnvContext], Any],
    validate: Any,
    restarts: int,
    on_made: Callable[[Any, EnvContext], None] | None = None,
) -> list[EnvSlot]:
    """Returns a worker's environments in their slots; they may have several agents.

    Args:
        config: The worker's.
        context: What their makers get, but for the slot.
        creator: Makes an environment.
        validate: `fn(env, context)` of the user's that looks at the first one; None has none.
        restarts: How often the worker was made anew, for streams of its own.
        on_made: Gets each environment that is made, as its maker returned it, and its context.

    Raises:
        EnvError: If one cannot be made, or is wrong.
    """
    seed = entropy_seed() if config.seed is None else config.seed
    environments = SlotEnvironments(creator)

    def make_slot(index: int) -> EnvSlot:
        return EnvSlot(
            environments.creator_of(index),
            context.copy_with_overrides(vector_index=index),
            index=index,
            seed=int(seed),
            stream=max(context.worker_index, 1),
            restarts=restarts,
            horizon=config.horizon or None,
            as_many=has_several(config),
            on_made=on_made,
        )

    first = make_slot(0)
    if not isinstance(seed, DrawnSeed):
        warn_unseedable(first.env)
    # A vectorised environment needs one of its kind beside it, for spaces and for users to look at.
    count = 1 if config.vectorized_env else config.num_envs_per_worker
    slots = [first, *map(make_slot, range(1, environments.count or count))]
    where = f"the environment of worker {context.worker_index}"
    if not isinstance(first.env, gym.Env):
        if validate is not None:
            validate(first.env, first._context)
        if config.vectorized_env:
            raise ConfigError("vectorized_env: got True with several agents or policies; set it to False")
        return slots
    check_spaces(first.env, where)
    if validate is not None:
        validate(first.env, first._context)
    obs, _ = first.begin()
    check_observation(obs, first.env.observation_space, f"the first observation of {where}")
    first.episode = -1
    return slots


def with_spaces(
    spec: PolicySpec, policy_id: str, mapping: AgentMapping, observation_space: Any, action_space: Any
) -> PolicySpec:
    """Returns a policy's specification with the environment's spaces where it has none.

    Raises:
        ConfigError: If there are none.
    """
    own_obs, own_action = spec.observation_space, spec.action_space
    if own_obs is None:
        own_obs = space_for(observation_space, policy_id, mapping, "observation_space")
    if own_action is None:
        own_action = space_for(action_space, policy_id, mapping, "action_space")
    if own_obs is None or own_action is None:
        raise ConfigError(
            'no spaces for the policy: set "env", or both "observation_space" and "action_space" in the config'
        )
    return spec._replace(observation_space=convert_spaces(own_obs), action_space=convert_spaces(own_action))


def make_runner(worker: Any, hooked: Iterable[str]) -> EnvRunner | MultiAgentRunner:
    """Returns what samples in a worker's environments.

    Args:
        worker: The `RolloutWorker`, with its environments and policies.
        hooked: Names of the callbacks that are called.
    """
    config = worker.policy_config
    base_env = BaseEnv(LiveEnvs(worker.slots))
    calls: dict[str, Callable[..., None]] = {hook: partial(_call, worker.callbacks, hook) for hook in hooked}
    settings = RunnerSettings(
        rollout_fragment_length=max(config.rollout_fragment_length, 1),
        batch_mode=config.batch_mode,
        horizon=config.horizon or None,
        soft_horizon=config.soft_horizon,
        no_done_at_end=config.no_done_at_end,
        clip_rewards=worker.clips_rewards,
        explore=config.explore,
        render_env=config.render_env,
        recreate_envs=config.recreate_failed_workers,
        # Plans without replay wait for a number of rows: a fragment that lacked one would cost a second round.
        whole_fragments="replay_buffer_config" not in config,
    )
    hooks = Hooks(call=calls, worker=worker, base_env=base_env)
    if not isinstance(worker.slots[0].env, gym.Env):
        multiagent = config.multiagent
        runner_class = ExternalRunner if isinstance(worker.slots[0].env, ExternalEnv) else MultiAgentRunner
        return runner_class(
            worker.slots,
            worker.policy_map,
            worker.episode_mapping,
            settings,
            hooks,
            filters=worker.filters,
            observation_fn=multiagent.observation_fn,
            count_steps_by=multiagent.count_steps_by,
        )
    policy = worker.policy_map[DEFAULT_POLICY_ID]
    if config.vectorized_env:
        vector_env = make_vector_env(config.env, config.num_envs_per_worker, dict(config.env_config or {}))
        first = worker.slots[0]
        return VectorRunner(vector_env, first, policy, DEFAULT_POLICY_ID, settings, hooks, policy._obs_filter)
    return EnvRunner(worker.slots, policy, DEFAULT_POLICY_ID, settings, hooks, policy._obs_filter)


class LiveEnvs(list[Any]):
    """The environments of slots, looked up when asked: a replaced one is seen at once."""

    def __init__(self, slots: list[EnvSlot]) -> None:
        super().__init__()
        self._slots = slots

    def __iter__(self) -> Any:
        return iter([slot.env for slot in self._slots])

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, index: Any) -> Any:
        return [slot.env for slot in self._slots][index]


def _call(callbacks: Any, hook: str, **kwargs: Any) -> None:
    call_hook(callbacks, hook, kwargs)
