"""Keys that were renamed in RLlib, understood under their old and newer names and answered with the name used here."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlframe.config.faults import Fault, fault_list, got, shorten
from rlframe.config.nested_dict import assign, copy_containers, lookup, same
from rlframe.utils.errors import ConfigError

SENTINEL = -1
"""The value by which RLlib 1.x marked a deprecated key as not set."""
_MISSING = object()


class RenamedKeyWarning(FutureWarning):
    """A config uses another name of a key. A FutureWarning, because Python hides DeprecationWarning from users."""


@dataclass(frozen=True)
class Rename:
    """What another name of a key means here.

    Attributes:
        targets: Dotted keys that take the value.
        value: Makes the value of the targets; by default the value itself.
        advice: Names of the new keys for the warning, where they are not simply the targets.
        dropped: Values that say nothing and are dropped.
        pointless: Why the key changes nothing here, whatever its value: it is dropped with this as a warning.
        refused: Whether copies of RLlib's `validate_config` raise where the key is not -1.
    """

    targets: tuple[str, ...]
    value: Callable[[Any], Any] = field(default=lambda value: value)
    advice: str | None = None
    dropped: tuple[Any, ...] = (SENTINEL,)
    pointless: str | None = None
    refused: bool = False

    @property
    def reads_back(self) -> bool:
        """Whether programs that left the key unset may read the target's value there: what it was is what it is."""
        return bool(self.targets) and self.value is Rename.value and not self.refused


def _unless(*dropped: Any, advice: str) -> Rename:
    """Returns what a key means of which only some values are understood: nothing; others are a fault."""
    return Rename((), advice=advice, dropped=(SENTINEL, *dropped))


def _pointless(why: str, *dropped: Any) -> Rename:
    """Returns what a key means that changes nothing here."""
    return Rename((), dropped=(SENTINEL, *dropped), pointless=why)


def _to(*targets: str, dropped: tuple[Any, ...] = (SENTINEL,), refused: bool = False) -> Rename:
    """Returns a rename that hands the value on."""
    return Rename(targets, dropped=dropped, refused=refused)


RENAMES: dict[str, Rename] = {
    # Old names of RLlib 0.x and 1.x
    "sample_batch_size": _to("rollout_fragment_length"),
    "use_pytorch": Rename(("framework",), lambda on: "torch" if on else "tf", "framework='torch' or 'tf'"),
    "eager": Rename(("framework",), lambda _: "tfe", "framework='tfe'", dropped=(SENTINEL, False)),
    "monitor": _to("record_env"),
    "buffer_size": _to("replay_buffer_config.capacity"),
    "replay_buffer_size": _to("replay_buffer_config.capacity"),
    "vf_share_layers": _to("model.vf_share_layers"),
    "num_data_loader_buffers": _to("num_multi_gpu_tower_stacks"),
    "grad_norm_clipping": _to("grad_clip"),
    "policy_graphs": _to("multiagent.policies"),
    "multiagent.policy_graphs": _to("multiagent.policies"),
    "multiagent.policies_to_learn": _to("multiagent.policies_to_train"),
    "model.custom_options": _to("model.custom_model_config"),
    "Q_model.hidden_activation": _to("Q_model.fcnet_activation", refused=True),
    "Q_model.hidden_layer_sizes": _to("Q_model.fcnet_hiddens", refused=True),
    "policy_model.hidden_activation": _to("policy_model.fcnet_activation", refused=True),
    "policy_model.hidden_layer_sizes": _to("policy_model.fcnet_hiddens", refused=True),
    "model.free_logstd": _to("model.free_log_std"),
    "model.lstm_use_prev_action_reward": _to("model.lstm_use_prev_action", "model.lstm_use_prev_reward"),
    "exploration_final_eps": _to("exploration_config.final_epsilon"),
    "schedule_max_timesteps": Rename((), advice="exploration_config.epsilon_timesteps"),
    "exploration_fraction": Rename((), advice="exploration_config.epsilon_timesteps"),
    "per_worker_exploration": Rename(
        ("exploration_config.type",), lambda _: "PerWorkerEpsilonGreedy", "exploration_config.type",
        dropped=(SENTINEL, False),
    ),
    "soft_q": Rename(
        ("exploration_config.type",), lambda _: "SoftQ", "exploration_config.type", dropped=(SENTINEL, False)
    ),
    "parameter_noise": Rename(
        ("exploration_config.type",), lambda _: "ParameterNoise", "exploration_config.type", dropped=(SENTINEL, False)
    ),
    "softmax_temp": _unless(1.0, advice="exploration_config.temperature, with type SoftQ"),
    "beta_annealing_fraction": _unless(advice="prioritized_replay_beta_annealing_timesteps"),
    "exploration_enabled": _to("explore"),
    "exploration_noise_type": Rename(
        ("exploration_config.type",),
        lambda kind: {"ou": "OrnsteinUhlenbeckNoise", "gaussian": "GaussianNoise"}.get(kind, kind),
        "exploration_config.type",
    ),
    "exploration_ou_noise_scale": _to("exploration_config.ou_base_scale"),
    "exploration_ou_theta": _to("exploration_config.ou_theta"),
    "exploration_ou_sigma": _to("exploration_config.ou_sigma"),
    "exploration_gaussian_sigma": _to("exploration_config.stddev"),
    "exploration_final_scale": _to("exploration_config.final_scale"),
    "exploration_should_anneal": _unless(True, advice="exploration_config.final_scale"),
    "pure_exploration_steps": _to("exploration_config.random_timesteps"),
    "multiagent_sync_replay": _unless(False, advice="multiagent.replay_mode='lockstep'"),
    "straggler_mitigation": _unless(False, advice="recreate_failed_workers, or an algorithm that waits for no worker"),
    "bc_logstd_coeff": _unless(0.0, advice="model.free_log_std"),
    "model.state_shape": _unless(None, advice="get_initial_state() of a custom model"),
    "model.squash_to_range": _unless(False, advice="normalize_actions"),
    "model.num_framestacks": _unless(0, "auto", advice="model.framestack, or view requirements of a custom model"),
    # Keys of RLlib 0.x and 1.x that steered what is not here
    "use_exec_api": _pointless("trainers always run execution plans", True),
    "_use_trajectory_view_api": _pointless("trajectories are always collected by view requirements", True),
    "no_eager_on_workers": _pointless("TensorFlow is traced in all processes", False),
    "exploration_config.framework": _pointless("explorations act in the framework of their policy"),
    "disable_env_checking": _pointless("what environments return is checked as it comes, at no cost worth saving"),
    "evaluation_sample_timeout_s": _pointless("evaluation lasts until its episodes are over"),
    "sync_filters_on_rollout_workers_timeout_s": _pointless("filters are in step when a round of sampling is over"),
    "validate_workers_after_construction": _pointless("workers that cannot be made are an error at once", True),
    "num_consecutive_worker_failures_tolerance": _pointless("workers are replaced as often as they die"),
    "memory": _pointless("Ray reserves no memory for trials", 0),
    "object_store_memory": _pointless("Ray's store belongs to all; ray.init() says how large it is", 0),
    "memory_per_worker": _pointless("Ray reserves no memory for workers", 0),
    "object_store_memory_per_worker": _pointless("Ray's store belongs to all; ray.init() says how large it is", 0),
    "worker_cls": _unless(None, advice="callbacks for what a class of workers would do"),
    "restart_failed_sub_environments": _unless(False, advice="recreate_failed_workers"),
    "_disable_action_flattening": _unless(False, advice="flattened actions, or tree.map_structure in the model"),
    "model._disable_action_flattening": _unless(False, advice="flattened actions in the model"),
    "min_train_timesteps_per_reporting": _unless(None, 0, advice="timesteps_per_iteration, in env steps sampled"),
    # Newer names of RLlib 1.10 to 2.x
    "min_train_timesteps_per_iteration": _unless(None, 0, advice="timesteps_per_iteration, in env steps sampled"),
    "enable_async_evaluation": _unless(False, advice="evaluation_parallel_to_training"),
    "enable_connectors": _unless(False, advice="preprocessors, filters and normalize_actions"),
    "checkpoint_trainable_policies_only": _unless(False, advice="Trainer.get_weights([policy ids])"),
    "model.always_check_shapes": _pointless("shapes are checked where they are made", False),
    "model.encoder_latent_dim": _unless(None, advice="model.post_fcnet_hiddens"),
    "off_policy_estimation_methods": Rename(("input_evaluation",), list),
    "num_env_runners": _to("num_workers"),
    "num_rollout_workers": _to("num_workers"),
    "num_envs_per_env_runner": _to("num_envs_per_worker"),
    "num_cpus_per_env_runner": _to("num_cpus_per_worker"),
    "num_gpus_per_env_runner": _to("num_gpus_per_worker"),
    "custom_resources_per_env_runner": _to("custom_resources_per_worker"),
    "num_cpus_for_local_worker": _to("num_cpus_for_driver"),
    "num_cpus_for_main_process": _to("num_cpus_for_driver"),
    "num_gpus_per_learner": _to("num_gpus"),
    "create_env_on_local_worker": _to("create_env_on_driver"),
    "train_batch_size_per_learner": _to("train_batch_size", dropped=(SENTINEL, None)),
    "minibatch_size": _to("sgd_minibatch_size"),
    "num_epochs": _to("num_sgd_iter"),
    "lambda_": _to("lambda"),
    "callbacks_class": _to("callbacks"),
    "num_learners": Rename((), advice="num_gpus: there is one learner", dropped=(SENTINEL, 0, 1)),
    "enable_rl_module_and_learner": Rename((), advice="custom_model in model", dropped=(SENTINEL, False)),
    "enable_env_runner_and_connector_v2": Rename((), advice="custom_model in model", dropped=(SENTINEL, False)),
    "ignore_env_runner_failures": _to("ignore_worker_failures"),
    "restart_failed_env_runners": _to("recreate_failed_workers"),
    "recreate_failed_env_runners": _to("recreate_failed_workers"),
    "min_time_s_per_iteration": _to("min_iter_time_s", dropped=(SENTINEL, None)),
    "min_time_s_per_reporting": _to("min_iter_time_s", dropped=(SENTINEL, None)),
    "min_sample_timesteps_per_iteration": _to("timesteps_per_iteration", dropped=(SENTINEL, None)),
    "min_sample_timesteps_per_reporting": _to("timesteps_per_iteration", dropped=(SENTINEL, None)),
    "metrics_num_episodes_for_smoothing": _to("metrics_smoothing_episodes"),
    "metrics_episode_collection_timeout_s": _to("collect_metrics_timeout"),
    "evaluation_duration": _to("evaluation_num_episodes"),
    "evaluation_num_env_runners": _to("evaluation_num_workers"),
    "num_steps_sampled_before_learning_starts": _to("learning_starts"),
    "target_network_update_freq_timesteps": _to("target_network_update_freq"),
    "replay_buffer_config.learning_starts": _to("learning_starts"),
    "replay_buffer_config.replay_batch_size": _to("train_batch_size", dropped=(SENTINEL, None)),
    "replay_buffer_config.replay_mode": _to("multiagent.replay_mode"),
    "replay_buffer_config.worker_side_prioritization": _to("worker_side_prioritization"),
    "replay_buffer_config.replay_sequence_length": _unless(None, 0, 1, advice="model.max_seq_len and burn_in"),
    "replay_buffer_config.storage_unit": _unless("timesteps", advice="type 'EpisodeReplayBuffer' for whole episodes"),
    "replay_buffer_config._enable_replay_buffer_api": _pointless("buffers are always made by this section", True),
    "replay_buffer_config.no_local_replay_buffer": _pointless("with shards there is no other buffer", True),
    "replay_buffer_shards_colocated_with_driver": _pointless("Ray places the shards", True),
    "replay_buffer_config.replay_buffer_shards_colocated_with_driver": _pointless("Ray places the shards", True),
    "replay_buffer_config.prioritized_replay": _to("prioritized_replay"),
    "replay_buffer_config.prioritized_replay_alpha": _to("prioritized_replay_alpha"),
    "replay_buffer_config.prioritized_replay_beta": _to("prioritized_replay_beta"),
    "replay_buffer_config.prioritized_replay_eps": _to("prioritized_replay_eps"),
}  # fmt: skip
"""By dotted key as people write it, what it means here."""

#: Other names of replay buffers, RLlib 1.10 to 2.x, and whether they sample by priority.
_BUFFERS = {
    "ReplayBuffer": None,
    "MultiAgentReplayBuffer": None,
    "PrioritizedReplayBuffer": True,
    "MultiAgentPrioritizedReplayBuffer": True,
}
_BUFFER = "replay_buffer_config.type"

_SCHEDULE_STEPS, _SOFT_Q, _TEMPERATURE = "schedule_max_timesteps", "soft_q", "softmax_temp"
_FRACTIONS = {
    "exploration_fraction": "exploration_config.epsilon_timesteps",
    "beta_annealing_fraction": "prioritized_replay_beta_annealing_timesteps",
}
"""Keys of RLlib 0.8 that are fractions of `schedule_max_timesteps`, and what they give a number of."""
_OLD_EXPLORATION = (_SCHEDULE_STEPS, _SOFT_Q, _TEMPERATURE, *_FRACTIONS, "exploration_final_eps")

_READ_BY_PROGRAMS = frozenset({"model.custom_options"})
"""Other names that no config declares, and that programs read again where they have set them."""
_READ_BY_COPIES = frozenset({"grad_norm_clipping", "sample_batch_size", "vf_share_layers"})
"""Other names that no config declares, and that copies of RLlib's policies and plans read: QMIX's, and those of 0.8."""
_OF_NO_MEANING: dict[str, dict[str, Any]] = {
    "moving_average_sqd_adv_norm_start": {"bc_logstd_coeff": 0.0},
    "worker_side_prioritization": {"replay_buffer_shards_colocated_with_driver": True},
}
"""By a key beside them: keys of RLlib 1.10 to 1.13 that no config declares and its copies read, with its defaults."""


def with_other_names(config: dict[str, Any], deprecated: Collection[str] | None = None) -> dict[str, Any]:
    """Returns a copy of a whole config in which other names have the values of the names used here.

    Users' execution plans read `config["buffer_size"]`, and their policies `config["model"]["custom_options"]`, which
    their programs have set.

    Args:
        config: The config. Not changed.
        deprecated: Its keys, with dotted names, that are other names; None takes those that stand there as not set.
    """
    copy = copy_containers(config)
    if deprecated is None:
        deprecated = {dotted for dotted in RENAMES if lookup(config, dotted) == SENTINEL}
    for dotted in sorted((RENAMES.keys() & deprecated) | _READ_BY_PROGRAMS | _READ_BY_COPIES):
        value = lookup(config, RENAMES[dotted].targets[0], _MISSING) if RENAMES[dotted].reads_back else _MISSING
        if value is not _MISSING and lookup(config, dotted, SENTINEL) == SENTINEL:
            assign(copy, dotted, value)
    for beside, unset in _OF_NO_MEANING.items():
        copy = {**unset, **copy} if beside in copy else copy
    return dict(copy)


@contextlib.contextmanager
def other_names_in(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Has a config hold values meanwhile under the other names that programs read, too; for hooks.

    What a hook writes there is the value of the name used here; names with values of another kind are left out, such as
    `soft_q`, which stands for a type of exploration. `use_pytorch` of RLlib 0.8 is there to read only.

    Yields:
        The config.
    """
    added = [dotted for dotted in _READ_BY_PROGRAMS if lookup(config, dotted, _MISSING) is _MISSING]
    for dotted in added:
        assign(config, dotted, lookup(config, RENAMES[dotted].targets[0], {}))
    named = {dotted: lookup(config, rename.targets[0]) for dotted, rename in RENAMES.items() if _unset(config, dotted)}
    for dotted, value in named.items():
        assign(config, dotted, value)
    asks = "framework" in config and "use_pytorch" not in config
    if asks:
        config["use_pytorch"] = config["framework"] == "torch"
    yield config
    if asks:
        config.pop("use_pytorch", None)
    for dotted in added:
        parent, _, name = dotted.rpartition(".")
        assign(config, RENAMES[dotted].targets[0], lookup(config, parent).pop(name))
    for dotted, value in named.items():
        written, rename = lookup(config, dotted, value), RENAMES[dotted]
        if not same(written, value) and written not in rename.dropped:
            assign(config, rename.targets[0], written)
        assign(config, dotted, SENTINEL)


def _unset(config: Mapping[str, Any], dotted: str) -> bool:
    """Returns whether a config holds, as not set, another name of a key that has the same values."""
    return RENAMES[dotted].reads_back and same(lookup(config, dotted), SENTINEL)


def translate_renames(config: Mapping[str, Any], known: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns a copy of a config with the names used here, and a sentence for every name that was replaced.

    Args:
        config: A partial or whole config.
        known: Dotted keys of the algorithm. A name is replaced only by a known key, and never if it is known itself.

    Raises:
        ConfigError: If a key is given under two names with different values, or its value has no meaning here.
    """
    translation = Translation(config, known)
    if translation.faults:
        raise ConfigError(fault_list(translation.faults))
    return translation.config, translation.sentences


class Translation:
    """A config with the names used here.

    Attributes:
        config: The translated copy.
        sentences: One for each name that was replaced.
        faults: Names that contradict each other, or have no meaning here.
        written: The other name that was written, by the name used here.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        known: Collection[str],
        *,
        deprecated: Collection[str] = (),
        other_name_wins: bool = False,
        originals: Sequence[Mapping[str, Any]] = (),
        keeps_own: bool = False,
    ) -> None:
        """Translates a config.

        Args:
            config: A partial or whole config. Not changed.
            known: Dotted keys of the algorithm.
            deprecated: Known keys that are other names all the same; they are left behind as "not set".
            other_name_wins: In defaults both names have a value, and the other name is what the user wrote.
            originals: Whole configs that this one may be a copy of: values that stand there were not written by hand.
            keeps_own: Whether keys may be a program's own: those of RLlib's that have no name here stay as they are.
        """
        self.config: dict[str, Any] = copy_containers(dict(config))
        self.sentences: list[str] = []
        self.faults: list[Fault] = []
        self.written: dict[str, str] = {}
        self._known = known
        self._deprecated = deprecated
        self._other_name_wins = other_name_wins
        self._originals = originals
        self._keeps_own = keeps_own
        self._join_old_exploration()
        config = copy_containers(self.config)
        for dotted, rename in RENAMES.items():
            value = lookup(config, dotted, _MISSING)
            if value is not _MISSING and self._means_something(dotted, rename):
                self._replace(dotted, rename, value)
        self._name_buffer()

    def _join_old_exploration(self) -> None:
        """Joins the keys of RLlib 0.8 that mean something together only: soft Q-learning, fractions of a schedule."""
        said = {key: self.config[key] for key in _OLD_EXPLORATION if self._is_said(key)}
        soft = said.get(_SOFT_Q)
        if soft:
            for key in said.keys() & {"exploration_final_eps", "exploration_fraction"}:
                self._replace(key, _pointless("soft_q=True explores by SoftQ, which has no epsilon"), said[key])
        if soft is not None and _TEMPERATURE in said:
            unused = () if soft else (said[_TEMPERATURE],)
            rename = _to("exploration_config.temperature", dropped=unused)
            self._replace(_TEMPERATURE, rename, said[_TEMPERATURE])
        fractions = [key for key in _FRACTIONS if key in said]
        if _SCHEDULE_STEPS not in said or not fractions:
            return
        del self.config[_SCHEDULE_STEPS]
        for key in fractions:
            if key in self.config and _FRACTIONS[key] in self._known:
                self._replace(key, _to(_FRACTIONS[key]), int(said[key] * said[_SCHEDULE_STEPS]))

    def _is_said(self, key: str) -> bool:
        return key in self.config and key not in self._known and self.config[key] not in (None, SENTINEL)

    def _name_buffer(self) -> None:
        """Writes the name used here of a replay buffer, and the key that says how it samples."""
        kind = lookup(self.config, _BUFFER, None)
        if not isinstance(kind, str) or kind not in _BUFFERS or _BUFFER not in self._known:
            return
        assign(self.config, _BUFFER, "LocalReplayBuffer")
        name = "'LocalReplayBuffer'"
        if _BUFFERS[kind] and "prioritized_replay" in self._known:
            assign(self.config, "prioritized_replay", True)
            name += " with prioritized_replay=True"
        self.sentences.append(f"{_BUFFER}={kind!r} is called {name} here")

    def _means_something(self, dotted: str, rename: Rename) -> bool:
        """Whether a name is another name of known keys, and no known key itself."""
        own = dotted in self._known and dotted not in self._deprecated
        own = own or (self._keeps_own and not rename.targets and "." not in dotted)
        return not own and all(target in self._known for target in rename.targets)

    def _replace(self, dotted: str, rename: Rename, value: Any) -> None:
        """Removes a name from the config and writes its value under the names used here."""
        self._remove(dotted)
        if any(type(value) is type(item) and value == item for item in rename.dropped):
            return
        if rename.pointless:
            self.sentences.append(f"config key {dotted} changes nothing here: {rename.pointless}; leave it out")
            return
        if not rename.targets:
            self.faults.append(Fault(dotted, f"{got(value)}, not known here; use {rename.advice}"))
            return
        new_names = rename.advice or " and ".join(rename.targets)
        self.sentences.append(f"config key {dotted} is called {new_names} here; its value is used")
        for target in rename.targets:
            self._write(dotted, target, rename.value(value))

    def _write(self, dotted: str, target: str, value: Any) -> None:
        """Writes a value under the name used here, or notes that another value stands there already."""
        present = lookup(self.config, target, value)
        stand = (lookup(original, target, _MISSING) for original in self._originals)
        copied = target not in self.written and any(same(present, value_there) for value_there in stand)
        if self._other_name_wins or copied or same(present, value):
            self.written[target] = dotted
            assign(self.config, target, value)
        else:
            text = f"got {shorten(value)}, but {target}, the name used here, is {shorten(present)}; leave out {dotted}"
            self.faults.append(Fault(dotted, text))

    def _remove(self, dotted: str) -> None:
        """Removes a name, or marks it as not set where it is declared."""
        parent, _, last = dotted.rpartition(".")
        values = lookup(self.config, parent) if parent else self.config
        if dotted in self._deprecated:
            values[last] = SENTINEL
        else:
            del values[last]
