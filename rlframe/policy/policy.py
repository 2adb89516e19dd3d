"""The framework-free base of every policy: what acts, and what learning is added to; and its parts with a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.data.columns import NEXT_OBS, OBS
from rlframe.data.rows import slice_column
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.preprocessors import get_preprocessor
from rlframe.policy.env_actions import first_choice
from rlframe.policy.inference import Inference
from rlframe.policy.own_inference import OwnActing, OwnForward
from rlframe.policy.policy_making import PolicyMaking, default_view_requirements
from rlframe.policy.policy_memory import PolicyMemory
from rlframe.policy.policy_spec import PolicySpec as PolicySpec
from rlframe.policy.policy_state import PolicyState, State
from rlframe.policy.requested_actions import RequestedActions, unbatch_one
from rlframe.policy.rllib_names import RLlibPolicyNames
from rlframe.policy.users_code import PolicyType, method, users_way, widen, with_attributes
from rlframe.utils.numpy import convert_to_numpy
from rlframe.utils.schedules.constant_schedule import ConstantSchedule
from rlframe.utils.schedules.schedule import PiecewiseSchedule
from rlframe.utils.seeding import entropy_seed, make_rng
from rlframe.utils.spaces.old_gym import known_to_both
from rlframe.utils.spaces.space_utils import get_base_struct_from_space


class Component:
    """A part of a policy with a state, or a place in its learner step; `Policy.components` holds them by name.

    What a part does not override does nothing.
    """

    def get_state(self) -> dict[str, Any]:
        """Returns the state: nested dicts of arrays and numbers."""
        return {}

    def check_state(self, state: Mapping[str, Any] | None) -> None:
        """Raises a CheckpointError where a state cannot be taken; called before anything of a checkpoint is.

        Args:
            state: What `get_state` returned, None where the checkpoint has nothing of this part.
        """

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""

    def ready(self) -> None:
        """Called once, when the policy is built."""

    def on_timestep(self, timestep: int) -> None:
        """Takes the count of env steps."""

    def before_learning(self, samples: SampleBatch) -> None:
        """Takes a batch, in arrays, before gradients are computed of it."""

    def after_learning(self, samples: SampleBatch, stats: dict[str, Any]) -> None:
        """Takes a batch, in arrays, that a learner step was done on, and the step's statistics, to which it may add."""

    def extra_weights(self) -> dict[str, NDArray[Any]]:
        """Returns arrays that belong to the policy's weights and are not the network's, by name."""
        return {}

    def without_extra(self, weights: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns weights but for those that `extra_weights` names; raises a ValueError where they cannot be taken."""
        return weights

    def take_extra(self, weights: Mapping[str, Any]) -> None:
        """Takes its own of the policy's weights; called when the network has the others."""


class Scheduled(Component):
    """A number that follows the count of env steps, as an attribute of the policy.

    The policy has the schedule, too, under RLlib's name: programs put others in its place. Without one the number
    is what programs set it to.

    Args:
        policy: The policy.
        name: Name of the attribute.
        value: Its value where there is no schedule.
        points: `[[env step, value], ...]`, linear between them, from step 0 on; None keeps it.
        schedule: Name of the schedule's attribute.
    """

    def __init__(self, policy: Any, name: str, value: float, points: Any, schedule: str) -> None:
        self._policy, self._name, self._schedule = policy, name, schedule
        made = schedule_of(value, points)
        self._none = None if points else made
        setattr(policy, schedule, made)
        setattr(policy, name, float(made.value(0)))

    def on_timestep(self, timestep: int) -> None:
        """Sets the attribute to the schedule's value at a count of env steps, where there is a schedule."""
        schedule = getattr(self._policy, self._schedule)
        if schedule is not self._none:
            setattr(self._policy, self._name, float(schedule.value(timestep)))


class LearningRate(Scheduled):
    """The learning rate of all of a policy's optimisers, `cur_lr` by `lr_schedule`; see `Scheduled`."""

    def __init__(self, policy: Any, value: float, points: Any = None) -> None:
        super().__init__(policy, "cur_lr", value, points, "lr_schedule")
        self._follows = bool(points)

    def ready(self) -> None:
        """Sets every optimiser's rate to what the schedule begins with; without one they keep theirs."""
        if self._follows:
            self._policy.set_learning_rate(self._policy.cur_lr)

    def on_timestep(self, timestep: int) -> None:
        """Sets every optimiser's rate to the schedule's value at a count of env steps."""
        super().on_timestep(timestep)
        self._policy.set_learning_rate(self._policy.cur_lr)


class FollowsModel(Component):
    """A number of a policy, which the loss reads, that programs also set in the model, as schedules for RLlib do.

    Args:
        policy: A policy with its model; what the model begins with counts, too.
        name: Name of the attribute of both.
    """

    def __init__(self, policy: Any, name: str) -> None:
        self._policy, self._name = policy, name
        self._of_config = self._seen = as_number(getattr(policy, name))

    def before_learning(self, samples: SampleBatch) -> None:
        """Takes the model's value, if that is another than before."""
        value = as_number(getattr(self._policy.model, self._name))
        if np.float32(value) != np.float32(self._seen):
            self._seen = value
            setattr(self._policy, self._name, value)

    def get_state(self) -> dict[str, Any]:
        """Returns the value where it is no longer that of the config."""
        value = as_number(getattr(self._policy, self._name))
        return {} if value == self._of_config else {"value": value}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the value, until the model's is set again."""
        setattr(self._policy, self._name, state.get("value", self._of_config))


def as_number(value: Any) -> float:
    """Returns what a program has set as a number; copies of RLlib's losses leave the model's tensor in the policy."""
    return float(value.item() if hasattr(value, "item") else np.ravel(convert_to_numpy(value))[0])


def schedule_of(constant: float, points: Sequence[Sequence[float]] | None) -> Any:
    """Returns the schedule through `[[env step, value], ...]`, linear between them; a constant for None."""
    if not points:
        return ConstantSchedule(constant)
    pairs = [(int(step), float(value)) for step, value in points]
    return PiecewiseSchedule(pairs, outside_value=pairs[-1][1])


class Policy(RequestedActions, PolicyMaking, PolicyMemory, PolicyState, RLlibPolicyNames, metaclass=PolicyType):
    """Maps observations to actions, and learns from batches of them.

    Subclasses provide `forward(obs)`; learning policies add `learn_on_batch` and its parts. `obs` here is always
    preprocessed and filtered, float32 (or the space's own dtype for images), with a leading batch dimension B; actions
    are in the policy's space, i.e. bounded Boxes are [-1, 1] when `normalize_actions` is on.

    Args:
        observation_space: Preprocessed observation space, of Gymnasium or the old gym; its `original_space`, if any,
            is the environment's.
        action_space: The environment's action space.
        config: The trainer's config plus `worker_index` and `num_workers`.
    """

    framework: str | None = None
    #: "module:name" of the config that has the keys of the policy's algorithm, for trainers of other ones.
    defaults_from: str | None = None
    #: Columns of a training batch this policy wants beside the ones always there; None means all of them.
    train_columns: tuple[str, ...] | None = None
    #: Kind of the action distribution, such as "squashed_gaussian"; None is the action space's own.
    dist_type: str | None = None
    #: Whether actions are those of a group, a Tuple of equal Discrete spaces, whose agents choose each for itself.
    acts_for_group = False
    #: Makes the NumPy distribution of inputs [B, K]; None for a custom one.
    numpy_dist: Any = None
    #: Inputs [B, K] of the distribution that was acted by last.
    last_inputs: Any = None
    #: Whether `forward` gives state values, stored as `vf_preds`.
    wants_values = False
    #: Whether the loss takes the model's state values, stored or not.
    learns_values = False
    #: Longest sequence of a recurrent training batch, in rows.
    max_seq_len = 20
    #: Learner steps so far, where several processes have to agree on them.
    steps_learned = 0
    #: Whether sampling acts by a user's own `compute_actions`, where the class has one.
    samples_by_compute_actions = True
    #: Learners in other processes that gradients are averaged with, this one included; None learns alone.
    distributed_world_size: int | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        widen(cls)

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        self.observation_space = observation_space = known_to_both(observation_space)
        self.action_space = known_to_both(action_space)
        self.action_space_struct = get_base_struct_from_space(self.action_space)
        self._counts_from_elsewhere = any(np.any(first_choice(leaf)) for leaf in tree.flatten(self.action_space_struct))
        leaves = tree.flatten(self.action_space_struct)
        self._acts_in_numbers = any(isinstance(leaf, gym.spaces.Box) and not leaf.shape for leaf in leaves)
        self.config = config
        if type(self).max_seq_len == Policy.max_seq_len:  # no class of a program's own says another
            self.max_seq_len = int((config.get("model") or {}).get("max_seq_len") or self.max_seq_len)
        self.global_timestep = 0
        seed = config.get("seed")
        self._policy_seed = entropy_seed() if seed is None else int(seed)
        # worker 0 samples itself when there are no remote workers: it then uses the stream of worker 1, so that
        # `num_workers=0` and `num_workers=1` give the same numbers.
        stream = max(int(config.get("worker_index", 0)), 1)
        # Agents that are numbered may share a seed: without streams of their own they would all draw the same.
        agent = config.get("agent_id")  # MADDPG's; a program's own key of this name may be anything
        self._agent_stream = (int(agent),) if isinstance(agent, (int, np.integer)) else ()
        self._action_rng = make_rng(self._policy_seed, "action", stream, *self._agent_stream)
        self._exploration_rng = make_rng(self._policy_seed, "exploration", stream, *self._agent_stream)
        original = getattr(observation_space, "original_space", observation_space)
        self._obs_preprocessor = (
            None if config.get("_disable_preprocessor_api") else get_preprocessor(original)(original)
        )
        self._obs_filter: Any = None
        own = getattr(self, "view_requirements", {})  # set by what a program calls before the constructor
        self.view_requirements: dict[str, ViewRequirement] = {
            **default_view_requirements(observation_space, action_space),
            **own,
        }
        self.exploration: Any = None
        #: Parts with a state of their own, by name.
        self.components: dict[str, Component] = {}
        self._needs_memory: bool | None = None

    @property
    def config(self) -> Any:
        """The policy's own config: a dict that programs may write to, with its keys as attributes."""
        return self._own_config

    @config.setter
    def config(self, config: Any) -> None:
        self._own_config = with_attributes(type(self), config)

    def __repr__(self) -> str:
        parts: dict[str, Any] = vars(self)  # a user's own policy may set less, or fail halfway
        shown = {"framework": self.framework}
        shown |= {name: parts.get(name) for name in ("observation_space", "action_space", "global_timestep")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def run_first(self, *, again: bool = False) -> None:
        """Called when the policy is made, before it acts or learns.

        One that says by `forward` alone how it acts gets the exploration of its config here.

        Args:
            again: Whether it will be called again, when constructors of users' own are through.
        """
        if not again and self.exploration is None and type(self).forward is not Policy.forward:
            self.numpy_dist = self.numpy_dist or self._built_in_distribution()
            self.exploration = self._create_exploration()

    @cached_property
    def inference(self) -> Inference:
        """How the policy acts; chosen when it is made, and before where a constructor acts already."""
        return self.choose_inference()

    def choose_inference(self) -> Inference:
        """Returns how the policy acts, of what its class and its parts are now, and keeps it."""
        way, inner = users_way(type(self)), self._built_in_inference()
        if type(self).forward is not Policy.forward:
            inner = OwnForward(self, inner)
        self.inference = inner if way is None else OwnActing(self, inner, way == "compute_actions")
        return self.inference

    def _built_in_inference(self) -> Inference:
        """Returns what acts where no method of the class's own does."""
        return Inference(self)

    # --- acting -----------------------------------------------------------------------------------------------

    def notice_own_parts(self) -> None:
        """Called before acting and learning: a program may have put parts of its own into the policy."""

    def begin_acting(self, explore: bool) -> None:
        """Called before a fragment is sampled."""
        self.notice_own_parts()
        self.exploration.before_compute_actions(timestep=self.global_timestep, explore=explore)

    def forward(
        self, obs: NDArray[Any], explore: bool = True
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Returns distribution inputs [B, K] and state values [B], None unless `wants_values`.

        `explore` matters to networks with noise of their own.
        """
        inputs, values, _ = self.inference.built_in.run({OBS: obs}, explore)
        return inputs, values

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns state values [B] of `obs` [B, ...], at the start of episodes; zeros without a value function."""
        return self.inference.values(obs)

    def values_after(self, batch: Mapping[str, Any], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns V(`new_obs`) [n] of the given rows of a batch, with the memory that the policy had there.

        Args:
            batch: Collected rows, not yet cut into sequences.
            rows: Row numbers, int `[n]`.
        """
        next_obs = slice_column(batch[NEXT_OBS], rows)
        if self.needs_memory():
            return self._values_with_memory(batch, rows, next_obs)
        values_of = self.values if callable(self.values) else method(self, "values")  # a user may keep more there
        return np.asarray(values_of(next_obs), np.float32).reshape(-1)

    def distribution(self, dist_inputs: NDArray[np.float32]) -> Any:
        """Returns the NumPy action distribution for inputs [B, K], and keeps these."""
        self.last_inputs = dist_inputs
        return self.numpy_dist(dist_inputs, self._action_rng)

    def act_on_rows(
        self,
        obs: NDArray[Any],
        explore: bool = True,
        timestep: int | None = None,
        inputs: Mapping[str, NDArray[Any]] | None = None,
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns actions [B, ...] for `obs` [B, ...] and the columns that are stored with them; the sampler's path.

        Recurrent policies take what `RecurrentContext.inputs` gives, and return their states as columns `state_out_i`.
        """
        columns = {OBS: obs} if inputs is None else {OBS: obs, **inputs}
        with self._policy_lock:
            return self.inference.act(columns, explore, timestep, self.train_columns)

    def act_for(self, rows: Sequence[tuple[Any, Any]]) -> None:
        """Notes whose rows come next: a user's own way of acting is told of the episodes, and what they saw last.

        Args:
            rows: Episode and agent id of each row.
        """
        self.inference.act_for(rows)

    def allow_actions(self, obs: NDArray[Any]) -> None:
        """Writes into observations of zeros, `[B, ...]`, what acting on them needs; a hook for action masks."""

    # --- learning ---------------------------------------------------------------------------------------------

    def postprocess_trajectory(
        self,
        sample_batch: SampleBatch,
        other_agent_batches: dict[Any, tuple[Policy, SampleBatch]] | None = None,
        episode: Any = None,
    ) -> SampleBatch:
        """Returns the batch with whatever learning needs added, e.g. advantages or n-step rewards."""
        return sample_batch

    def collect_all_columns(self) -> None:
        """Has sampling collect every column: somebody else than the policy reads its rows."""
        self.train_columns = None

    def columns_learned_from(self) -> tuple[str, ...] | None:
        """Returns the columns that sampling and learning need of this policy's rows; None where that is all of them."""
        return None

    def complete_columns(self, batch: SampleBatch) -> SampleBatch:
        """Returns the batch with the columns that learning cannot do without, where postprocessing made none."""
        return batch

    #: Whether `postprocess_trajectory` takes a batch of several trajectories in one call.
    postprocesses_many = True

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
        """Returns the loss of one batch of tensors; policies of a framework learn by it."""
        raise NotImplementedError(f"{type(self).__name__} has no loss: override loss(), or learn_on_batch()")

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        """Learns on one batch and returns `{"learner_stats": {...}, ...}`."""
        raise NotImplementedError(f"{type(self).__name__} does not learn")

    def compute_gradients(self, postprocessed_batch: SampleBatch) -> tuple[list[Any], dict[str, Any]]:
        """Returns the gradients of one batch, without applying them, and the learner's info."""
        raise NotImplementedError(f"{type(self).__name__} does not learn")

    def apply_gradients(self, gradients: list[Any]) -> None:
        """Applies what `compute_gradients` returned, here or in another process."""
        raise NotImplementedError(f"{type(self).__name__} does not learn")

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Takes the global step count; schedules follow it."""
        self.global_timestep = self.schedule_timestep = int(global_vars["timestep"])
        for part in self.components.values():
            part.on_timestep(self.global_timestep)

    # --- memory ------------------------------------------------------------------------------------------------

    def to_tensors(self, value: Any) -> Any:
        """Returns arrays, nested or not, as tensors of the policy's framework; as they are where it has none."""
        return value

    def is_recurrent(self) -> bool:
        """Returns whether the policy carries state from step to step."""
        return self.num_state_tensors() > 0

    def needs_memory(self) -> bool:
        """Returns whether acting needs more than the observation: recurrent states, or past columns."""
        if self._needs_memory is None:
            self._needs_memory = self.is_recurrent() or bool(self.acting_views())
        return self._needs_memory

    def learns_sequences(self) -> bool:
        """Returns whether whole sequences of steps are learned from, and sampled rows are cut into such."""
        return self.is_recurrent()


__all__ = ["DEFAULT_POLICY_ID", "Policy", "PolicySpec", "State", "unbatch_one"]
