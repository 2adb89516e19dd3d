"""A worker's policies: how it makes and finds them, who has which, their weights and filters, and all that it saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rlframe.config.common import ONLY_EVALUATES, ROWS_ARE_FOR_LEARNING
from rlframe.config.view import ConfigDict
from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.evaluation.agent_mapping import agent_mapping
from rlframe.evaluation.callbacks import call_hook, make_callbacks
from rlframe.evaluation.code_names import OF_ACTIONS, reads_any_of
from rlframe.evaluation.policy_table import as_spec, has_several, policy_config
from rlframe.evaluation.rllib_names import RLlibWorkerNames
from rlframe.evaluation.tasks import set_tasks, tasks_of
from rlframe.evaluation.worker_building import make_runner, with_spaces
from rlframe.exploration.adopting import adopt
from rlframe.models.catalog import ModelCatalog
from rlframe.models.preprocessors import without_preprocessing
from rlframe.policy.numpy_policy import NumpyPolicy
from rlframe.policy.users_code import completed
from rlframe.policy.waiting_policies import become, rebuilder
from rlframe.utils.filter import get_filter
from rlframe.utils.seeding import derive_seed

if TYPE_CHECKING:
    from rlframe.config.common import CommonConfig
    from rlframe.evaluation.sampling.multi_agent import MultiAgentRunner
    from rlframe.evaluation.sampling.rollout import EnvSlot
    from rlframe.evaluation.sampling.single_agent import EnvRunner
    from rlframe.offline.worker_data import WorkerData
    from rlframe.policy.policy import Policy
    from rlframe.policy.policy_spec import PolicySpec

#: Callbacks that are given rows, in which they may look for any column.
_BATCH_HOOKS = frozenset({"on_postprocess_trajectory", "on_sample_end", "on_learn_on_batch"})


class WorkerPolicies(RLlibWorkerNames):
    """What a `RolloutWorker` does about its policies between two samples."""

    policy_config: CommonConfig
    policy_specs: dict[str, PolicySpec]
    preprocessors: dict[str, Any]
    filters: dict[str, Any]
    is_policy_to_train: Any
    trained_policies: Any  # the class of it
    policies_to_train: Any  # a property of the worker
    #: Ids of the policies that learn, where others were set than the config names.
    _set_to_train: list[str] | None = None
    callbacks: Any
    runner: EnvRunner | MultiAgentRunner | None
    slots: list[EnvSlot]
    observation_space: Any
    action_space: Any
    global_vars: dict[str, Any]
    worker_index: int
    num_workers: int
    _hooks: Any
    _creation_args: dict[str, Any]
    _mapping_fn: Any
    _data: WorkerData | None
    _make_data: Any  # methods of the worker
    set_global_vars: Any

    def add_policies(self, policy_spec: Any) -> None:
        """Builds the policies, and the sampler where there is an environment.

        Raises:
            ConfigError: If there are no spaces to build them for.
        """
        specs = policy_spec if isinstance(policy_spec, Mapping) else {DEFAULT_POLICY_ID: policy_spec}
        mapping = agent_mapping(self._mapping_fn, [*self.policy_map, *specs])
        table = dict(self.policy_specs)
        for policy_id, spec in specs.items():
            table[policy_id] = with_spaces(
                as_spec(spec, None), policy_id, mapping, self.observation_space, self.action_space
            )
        for policy_id in specs:
            self._add_policy(policy_id, table)
        if self.slots and self.runner is None:
            self.runner = make_runner(self, self._hooks)
        if self._data is None and (self.worker_index > 0 or self.num_workers == 0):
            self._data = self._make_data()

    def policy_mapping_fn(self, agent_id: Any, episode: Any = None, **kwargs: Any) -> str:  # noqa: ARG002 (RLlib's)
        """Returns the id of the policy that acts for an agent."""
        return agent_mapping(self._mapping_fn, list(self.policy_map))(agent_id, episode, self)

    def episode_mapping(self) -> Callable[[Any, Any], str]:
        """Returns the mapping of an episode that begins now, `fn(agent id, episode)`; later ones do not change it."""
        function = agent_mapping(self._mapping_fn, list(self.policy_map))

        def mapping(agent_id: Any, episode: Any) -> str:
            policy_id: str = function(agent_id, episode, self)
            # A simulator's episodes go on when a policy is removed; the mapping that came with that knows better.
            return policy_id if policy_id in self.policy_map else self.policy_mapping_fn(agent_id, episode)

        return mapping

    def set_policy_mapping_fn(self, policy_mapping_fn: Any = None) -> None:
        """Takes another mapping of agents to policies, for agents that appear from now on; None changes nothing."""
        if policy_mapping_fn is not None:
            agent_mapping(policy_mapping_fn, list(self.policy_map))
            self._mapping_fn = policy_mapping_fn

    def set_policies_to_train(self, policies_to_train: Any = None) -> None:
        """Takes other policies to learn: ids, or a function `(policy id, batch) -> bool`; None changes nothing."""
        if policies_to_train is not None:
            self.is_policy_to_train = self.trained_policies(policies_to_train)
            wanted = self.is_policy_to_train.wanted
            self._set_to_train = None if callable(wanted) else list(wanted)

    def remove_policy(
        self, policy_id: str = DEFAULT_POLICY_ID, policy_mapping_fn: Any = None, policies_to_train: Any = None
    ) -> None:
        """Forgets a policy; its agents' rows in running episodes are dropped with these.

        Args:
            policy_id: Its id.
            policy_mapping_fn: A new mapping of agents to policies; None keeps it.
            policies_to_train: New policies to learn; None keeps them.

        Raises:
            KeyError: If there is none of this id.
        """
        if policy_id not in self.policy_map:
            raise KeyError(f"policy_id={policy_id!r}: wanted one of {', '.join(self.policy_map)}")
        tables: tuple[dict[str, Any], ...] = (self.policy_map, self.preprocessors, self.filters, self.policy_specs)
        for table in tables:
            table.pop(policy_id, None)
        self.set_policy_mapping_fn(policy_mapping_fn)
        self.set_policies_to_train(policies_to_train)
        if self.runner is not None:
            self.runner.restart()

    def _add_policy(self, policy_id: str, table: Mapping[str, PolicySpec]) -> None:
        """Builds one policy of a table of specifications that have spaces."""
        spec = table[policy_id]
        raw_space: Any = spec.observation_space
        config = ConfigDict(policy_config(self.policy_config, spec))  # the policy's, also when it comes from the disk
        if has_several(config):  # with all spaces: critics of several agents are built by them
            config["multiagent"] = {**config["multiagent"], "policies": dict(table)}
        own_seed = "seed" in (spec.config or {})
        if policy_id != DEFAULT_POLICY_ID and config.get("seed") is not None and not own_seed:
            # With the trainer's seed all policies would begin with the same weights and explore alike.
            config["seed"] = derive_seed(int(config["seed"]), "policy", policy_id)
        if config["_disable_preprocessor_api"]:
            preprocessor: Any = without_preprocessing(raw_space)
        else:
            preprocessor = ModelCatalog.get_preprocessor_for_space(raw_space, config["model"])
        made_filter = get_filter(config["observation_filter"], preprocessor.shape)
        if self.policy_config.in_evaluation and hasattr(made_filter, "learns"):
            made_filter.learns = False
        arguments = (preprocessor.observation_space, spec.action_space, config)
        policy: Policy = spec.policy_class(*arguments)
        # Nothing of a policy that cannot be made stays behind.
        self.preprocessors[policy_id], self.filters[policy_id] = preprocessor, made_filter
        framework_class = getattr(spec.policy_class, "framework_class", None)
        attach = partial(self._attach_to_worker, policy_id, framework_class=framework_class)
        attach(policy)
        self.policy_map.add(policy_id, policy, rebuilder(spec.policy_class, arguments, attach))
        self.policy_specs[policy_id] = spec

    def _load_framework(self, policy_id: str, framework_class: Any, policy: NumpyPolicy) -> None:
        """Makes a policy that acts in NumPy the framework's, in the same object.

        Weights and random streams stay, and what a program has set on it.
        """
        import ray

        spec, was = self.policy_specs[policy_id], vars(policy)
        weights, streams, config = policy.weights, _streams(policy), dict(policy.config)
        policy_class = ray.get(framework_class)
        observation_space = self.preprocessors[policy_id].observation_space
        arguments = (observation_space, spec.action_space, completed(policy_class, config))
        rebuild = rebuilder(policy_class, arguments, partial(self._attach_to_worker, policy_id))
        assert rebuild is not None  # only classes are sent
        become(policy, policy_class, {})
        try:
            rebuild(policy)
            if weights:
                policy.set_weights(weights)
        except BaseException:
            become(policy, NumpyPolicy, was)
            raise
        own = was.keys() - vars(policy).keys() - {"recipe", "weights", "load_framework"}
        vars(policy).update({name: was[name] for name in own})
        if type(policy.exploration) is not type(was["exploration"]):  # a program's own, put in the other's place
            policy.exploration = was["exploration"]
        policy.on_global_var_update(self.global_vars)
        _take_streams(policy, streams)
        self.policy_specs[policy_id] = spec._replace(policy_class=policy_class)
        self.policy_map.became_another(policy_id, rebuild)

    def _attach_to_worker(self, policy_id: str, policy: Policy, framework_class: Any = None) -> None:
        """Gives a policy what it has of its worker; one that acts in NumPy what it can become, Ray's reference."""
        if framework_class is not None and isinstance(policy, NumpyPolicy):
            policy.load_framework = partial(self._load_framework, policy_id, framework_class, policy)
        policy._obs_preprocessor = self.preprocessors[policy_id]
        if policy.config.observation_filter != "NoFilter":
            policy._obs_filter = self.filters[policy_id]
        policy.callbacks = self.callbacks  # type: ignore[attr-defined]  # RLlib's name for users' code
        if "on_learn_on_batch" in self._hooks:  # each policy has an object of its own, as in RLlib
            given = self._creation_args["callbacks"]
            policy.callbacks = make_callbacks(self.policy_config.callbacks if given is None else given)  # type: ignore[attr-defined]
            policy._learn_hook = partial(_call_learn_hook, policy.callbacks)  # type: ignore[attr-defined]
        if self._rows_are_read():
            policy.collect_all_columns()
        if policy.exploration is None:  # a class of the user's own that only acts
            policy.exploration = policy._create_exploration()
        adopt(policy.exploration)

    def _rows_are_read(self) -> bool:
        """Returns whether more than learning reads the rows of this worker's samples."""
        config = self.policy_config
        if config.get(ONLY_EVALUATES):  # one of the user's own samples by itself, and looks at what it likes
            read = bool(config.custom_eval_function)
        else:  # by a program that made the worker itself, or whose own plan sees the rows
            read = not config.get(ROWS_ARE_FOR_LEARNING, False)
        # Rows that are sampled beside those that are read have as many columns.
        kept = config.output is not None or config.input != "sampler"
        looks = not _BATCH_HOOKS.isdisjoint(self._hooks) or reads_any_of(self.callbacks, OF_ACTIONS)
        return read or kept or looks

    # --- access, weights, filters -----------------------------------------------------------------------------

    def get_policy(self, policy_id: str = DEFAULT_POLICY_ID) -> Policy | None:
        """Returns a policy, None for an unknown id."""
        policy: Policy | None = self.policy_map.get(policy_id)
        return policy

    def for_policy(self, func: Callable[..., Any], policy_id: str = DEFAULT_POLICY_ID, **kwargs: Any) -> Any:
        """Returns `func(policy)`."""
        return func(self.policy_map[policy_id], **kwargs)

    def foreach_policy(self, func: Callable[[Policy, str], Any]) -> list[Any]:
        """Returns `func(policy, policy_id)` for each policy."""
        return [func(policy, pid) for pid, policy in list(self.policy_map.items())]

    def foreach_trainable_policy(self, func: Callable[[Policy, str], Any]) -> list[Any]:
        """Returns `func(policy, policy_id)` for each policy that is trained."""
        return [func(self.policy_map[pid], pid) for pid in self.policies_to_train]

    def get_weights(self, policies: list[str] | None = None) -> dict[str, Any]:
        """Returns `{policy_id: weights}`, of all policies unless named."""
        chosen = {pid: policy for pid, policy in self.policy_map.items() if policies is None or pid in policies}
        return {pid: _alone(policy, policy.get_weights) for pid, policy in chosen.items()}

    def set_weights(self, weights: Mapping[str, Any], global_vars: Mapping[str, Any] | None = None) -> None:
        """Takes `{policy_id: weights}`, and the global step count if given."""
        for pid, policy_weights in weights.items():
            if pid in self.policy_map:  # one that was removed meanwhile may still be sent
                policy = self.policy_map[pid]
                policy.set_weights(policy_weights)
                target = vars(policy).get("target_network")
                if self.worker_index and target is not None and policy.config.get("worker_side_prioritization"):
                    target.update(1.0)  # it is not sent along, and first priorities need one
        if global_vars:
            self.set_global_vars(global_vars)

    def get_filters(self, flush_after: bool = False) -> dict[str, Any]:
        """Returns copies of the observation filters, `{policy_id: filter}`."""
        copies = {pid: made.as_serializable() for pid, made in self.filters.items()}
        if flush_after:
            for made in self.filters.values():
                made.clear_buffer()
        return copies

    def sync_filters(self, new_filters: Mapping[str, Any]) -> None:
        """Takes the filters' statistics, keeping what was collected here since."""
        for pid, made in new_filters.items():
            self.filters[pid].sync(made)

    # --- state ------------------------------------------------------------------------------------------------

    def get_state(self, policies: bool = True) -> dict[str, Any]:
        """Returns filters, the environments' places and (unless told not to) the policies' whole state."""
        state: dict[str, Any] = {
            "filters": {pid: made.get_state() for pid, made in self.filters.items()},
            "runner": None if self.runner is None else self.runner.get_state(),
            "data": None if self._data is None else self._data.get_state(),
            "tasks": tasks_of(self),
            "global_vars": dict(self.global_vars),
            "streams": {pid: _streams(policy) for pid, policy in self.policy_map.items()},
        }  # fmt: skip
        if self._set_to_train is not None:
            state["policies_to_train"] = self._set_to_train
        if policies:
            state["policies"] = {pid: _alone(policy, policy.get_state) for pid, policy in self.policy_map.items()}
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        for pid, saved in state.get("policies", {}).items():
            self.policy_map[pid].set_state(saved)
        for pid, saved in state["filters"].items():
            self.filters[pid].set_state(saved)
        self.global_vars = dict(state["global_vars"])
        for pid, streams in state["streams"].items():
            _take_streams(self.policy_map[pid], streams)
        set_tasks(self, state.get("tasks"))
        self.set_policies_to_train(state.get("policies_to_train"))
        if self.runner is not None and state["runner"] is not None:
            self.runner.set_state(state["runner"])
        if self._data is not None and state.get("data") is not None:
            self._data.set_state(state["data"])

    def save(self) -> dict[str, Any]:
        """Returns the state (RLlib's name)."""
        return self.get_state()

    def restore(self, objs: Mapping[str, Any]) -> None:
        """Takes the state (RLlib's name)."""
        self.set_state(objs)


def _call_learn_hook(callbacks: Any, **kwargs: Any) -> None:
    call_hook(callbacks, "on_learn_on_batch", kwargs)


def _streams(policy: Policy) -> dict[str, Any]:
    """Returns what a policy's actions hang on beside its weights: random streams, exploration, the step count."""
    return {
        "exploration": policy.get_exploration_state(),
        "action_rng": policy._action_rng.bit_generator.state,
        "timestep": policy.global_timestep,
        "seed": policy._policy_seed,
    }


def _take_streams(policy: Policy, streams: Mapping[str, Any]) -> None:
    if streams["exploration"]:
        policy.exploration.set_state(streams["exploration"])
    policy._action_rng.bit_generator.state = streams["action_rng"]
    policy.global_timestep = int(streams["timestep"])
    policy._policy_seed = int(streams.get("seed", policy._policy_seed))


def _alone(policy: Policy, method: Callable[[], Any]) -> Any:
    """Returns what a method of a policy does while no other thread acts or learns with it: nothing half changed."""
    with policy._policy_lock:
        return method()
