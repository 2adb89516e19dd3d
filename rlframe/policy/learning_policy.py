"""What the policies of all frameworks share: acting through NumPy where it can be, and the learner's bookkeeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import BURN_IN, DISCOUNTS, N_STEPS, OBS, SEQ_LENS, STATE_IN_PREFIX, VALID_MASK
from rlframe.data.n_step import with_weights
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.modelv2 import ModelV2
from rlframe.policy.first_run import run_first
from rlframe.policy.framework_acting import FrameworkActing
from rlframe.policy.inference import Inference, NumpyInference
from rlframe.policy.learning_parts import LearningParts
from rlframe.policy.own_inference import FrameworkInference, HookedInference, TensorInference
from rlframe.policy.own_parts import notice
from rlframe.policy.parts import LossOutput, OptimizerSpec
from rlframe.policy.policy import Policy, State
from rlframe.policy.row_sums import RowSums
from rlframe.policy.users_code import give_both_names, run_first_behind_constructor
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY
from rlframe.utils.seeding import make_rng


class LearningPolicy(Policy, LearningParts, FrameworkActing):
    """Base of `TorchPolicy` and `TFPolicy`.

    Where model, exploration and distribution are built in, acting runs in NumPy on the live weights; any custom part
    makes it run through the framework. Both give the same numbers (within 1e-5).
    """

    framework: str
    samples_by_compute_actions = False
    #: Columns that the loss reads; None makes all of them tensors.
    learn_columns: tuple[str, ...] | None = None
    #: What the report has beside what the loss told: by name, such as `cur_lr`, the attribute.
    reported: Mapping[str, str] = {}
    #: Columns of noise that the loss draws actions with, see `random_columns`; a key of the config that makes it zeros.
    noise_columns: tuple[str, ...] = ()
    noiseless_key = ""
    #: Whether the network has noise of its own while exploring.
    _noisy_network = False
    #: Whether `before_loss_init` is still to come.
    _first_run_waits = False
    #: Rows that count in the batch now learned from, where an optimiser's limits are for sums; see `RowSums`.
    rows_learned: float

    #: Numbers in an action, of policies with `noise_columns`.
    action_size: int
    _optimizers: list[Any]
    model: Any
    #: The model's copies, one per device.
    model_gpu_towers: list[Any]
    dist_class: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        give_both_names(cls)
        if "__init__" in cls.__dict__ and cls.__module__.startswith("rlframe.agents."):
            run_first_behind_constructor(cls)

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, config)
        self.callbacks: Any = None
        self._learn_hook: Callable[..., None] | None = None
        #: What the loss computed beside the loss: scalars are means over rows, other tensors have an entry per row.
        self._loss_outputs: dict[str, Any] = {}
        self._initial_state: list[Any] | None = None
        self._wanted_columns: tuple[str, ...] | None = None
        self._loss_initialized = False
        #: Whether a model of the user's own adds to the loss: it may read any column.
        self._loss_reads_all = False
        #: Names of what the loss told by row, of what it told at all; None where it told nothing that way.
        self._per_row: tuple[str, ...] | None = None
        #: Learner steps so far.
        self.num_updates = 0
        self._due: frozenset[str] = frozenset()
        draws = type(self).random_columns is not LearningPolicy.random_columns or self.noise_columns
        self._loss_rng = make_rng(self._policy_seed, "loss", *self._agent_stream) if draws else None
        #: Number that sizes of train batches, and the rows of the first run, are a multiple of.
        self.batch_divisibility_req = 1
        self._model_parts: dict[tuple[str, ...], dict[str, Any]] = {}
        self.prepare()
        self.optimizer_specs = dict(self.optimizers())
        self._due = frozenset([*self.own_steps, *self.optimizer_specs])
        if any(spec.limits_for_sums for spec in self.optimizer_specs.values()):
            self.components["row_sums"] = RowSums(self)

    def grad_limit(self, spec: OptimizerSpec) -> Any:
        """Returns the largest global norm of an optimiser's gradient: a number, a tensor, or None."""
        return self._for_mean(spec, spec.grad_clip or None)

    def _for_mean(self, spec: OptimizerSpec, limit: float | None) -> Any:
        """Returns what a limit of an optimiser is for the gradient of the loss as it is."""
        return limit / self.rows_learned if limit is not None and spec.limits_for_sums else limit

    def _scheduled_optimizers(self) -> Iterator[Any]:
        """Yields the optimisers whose rate `set_learning_rate` sets; policies that only evaluate have none."""
        specs = list(self.optimizer_specs.values())
        for index, optimizer in enumerate(self._optimizers):
            if index >= len(specs) or specs[index].follows_schedule:
                yield optimizer

    def _start_update(self) -> None:
        """Settles which optimisers step in the update that begins, and counts it."""
        self.notice_own_parts()
        steps = self.num_updates
        self._due = frozenset(name for name, spec in self.optimizer_specs.items() if steps % spec.every == 0)
        self.num_updates += 1

    def keep(self, **stats: Any) -> None:
        """Keeps what the loss computed beside the loss, for the learner's report."""
        raise NotImplementedError

    def keep_output(self, output: LossOutput) -> None:
        """Keeps what a loss reports beside its losses."""
        self._per_row = tuple(output.per_row)
        self.keep(**output.stats, **output.per_row)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns learner statistics of the batch, called after the step: by default `reported`, and the loss's."""
        del train_batch
        per_row = self._per_row
        told = {} if per_row is None else {name: v for name, v in self._loss_outputs.items() if name not in per_row}
        if not (told and told.keys() >= self.kept_names.keys()):
            told = self.stats_left() | told
        numbers = {name: getattr(self, attribute) for name, attribute in self.reported.items() if name not in told}
        first = {name: value for name, value in numbers.items() if name.startswith("cur_")}
        return first | told | numbers  # in RLlib's order

    stats_fn = extra_grad_info

    def stats_left(self) -> dict[str, Any]:
        """Hook: returns statistics that a loss of the user's own left elsewhere; called where it did not tell all."""
        return {}

    def rows_left(self) -> dict[str, Any]:
        """Hook: returns what such a loss left by row, such as `td_error`."""
        return {}

    def update_value_normalizer(self, rows: SampleBatch) -> None:
        """Takes a train batch's value targets into PopArt's moments, if they come from there; values stay the same."""
        popart: Any = self.components.get("popart")
        if popart is not None:
            popart.update_from(rows)

    def update_target(self, tau: float | None = None) -> None:
        """Moves the target network, if there is one, towards the online one: target := τ · online + (1 − τ) · target.

        Args:
            tau: τ; None takes the config's, and copies where it has none.
        """
        if "target_network" in self.__dict__:
            self.target_network.update(float(self.config.get("tau", 1.0)) if tau is None else tau)

    # --- acting ---------------------------------------------------------------------------------------------------

    def notice_own_parts(self) -> None:
        """Does without what was made for parts in whose places a program has put its own."""
        if self.parts_in_use is None or self.parts_in_use.changed(self):
            notice(self)

    def _built_in_inference(self) -> Inference:
        if self.numpy_dist is None or self._has_acting_hooks():
            return HookedInference(self)
        if self._explores_with_tensors():
            return TensorInference(self)
        spec = self.numpy_spec()
        weights = None if spec is None else self.live_weights()
        if weights is not None:
            actor = type(self).build_actor(spec, weights, self._action_rng if self._noisy_network else None)
            return NumpyInference(self, actor, self.refresh_live_weights)
        return FrameworkInference(self)

    def run_first(self, *, again: bool = False) -> None:
        """Runs postprocessing and loss once on rows of zeros where they are the user's own.

        What they leave in the policy is there from the first sample on.

        Args:
            again: Whether it will be called again, when constructors of users' own are through: an attribute that is
                missing now may be set by then.
        """
        run_first(self, again=again)

    def losses_in_turn(self, losses: list[Any]) -> list[Any]:
        """Hook: returns a loss for each optimiser, of those that a loss of the user's own returned in a list."""
        return losses

    def to_numpy(self, value: Any) -> Any:
        """Returns the framework's tensors, nested or not, as arrays."""
        raise NotImplementedError

    def assign(self, variable: Any, array: NDArray[Any]) -> None:
        """Writes an array into one of the framework's variables."""
        raise NotImplementedError

    # --- learning ---------------------------------------------------------------------------------------------

    def learn_on_batch(self, postprocessed_batch: SampleBatch) -> dict[str, Any]:
        """Does one learner step and returns `{"learner_stats": ..., "model": ..., "custom_metrics": ...}`.

        Raises:
            NonFiniteError: If the loss is NaN or infinite; nothing is learned then, and the message names what was
                first to be so.
        """
        with self._policy_lock:
            custom = self._before_learning(postprocessed_batch)
            stats, fetches = self._update(postprocessed_batch)
            return self._after_learning(postprocessed_batch, self._learn_result(stats, fetches, custom))

    def _update(self, samples: SampleBatch) -> tuple[dict[str, Any], dict[str, Any]]:
        """Steps the optimisers that are due; returns statistics and further fetches, in the framework's tensors."""
        raise NotImplementedError

    def complete_batch(self, batch: SampleBatch) -> SampleBatch:
        """Returns a train batch with the columns that the loss cannot do without, where it comes from elsewhere."""
        return with_weights(self, batch) if DISCOUNTS in batch else batch

    def random_columns(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Returns the random numbers that the loss of a batch needs: normal ones `[rows, action_size]` by default.

        Drawn here, they are the same in both frameworks, and the policy's state has their generator's.
        """
        std = np.float32(not self.config.get(self.noiseless_key))
        return {name: std * rng.standard_normal((rows, self.action_size), np.float32) for name in self.noise_columns}

    def _learned_columns(self, samples: SampleBatch) -> SampleBatch:
        """Returns the columns that loss and model read: those of `learn_columns` and the model's views, or all.

        Those of a policy that learns from sequences are cut into padded ones, with `valid_mask`.
        """
        obs = samples.get(OBS)
        if not isinstance(obs, np.ndarray) or obs.dtype == object:  # as compress_observations leaves them
            samples = samples.copy(shallow=True).decompress_if_needed()
        samples = self.complete_batch(samples)
        if self.learns_sequences() and not samples.zero_padded:
            samples = self.padded_sequences(samples)
        rows = len(samples[VALID_MASK]) if VALID_MASK in samples else samples.count  # padding gets noise as well
        drawn = None if self._loss_rng is None else self.random_columns(rows, self._loss_rng)
        if self.learn_columns is None or self._loss_reads_all:
            return samples._like({**samples, **drawn}) if drawn else samples
        if self._wanted_columns is None:
            self._wanted_columns = self._wanted()
        chosen = {key: samples[key] for key in self._wanted_columns if key in samples}
        return samples._like({**chosen, **drawn} if drawn else chosen)

    def columns_learned_from(self) -> tuple[str, ...] | None:
        """Returns the columns that sampling and learning need of this policy's rows; None where that is all of them."""
        # Sampling beside data collects all columns; what it needs is what the class says.
        sampled = type(self).train_columns if self.train_columns is None else self.train_columns
        if sampled is None or self.learn_columns is None or self._loss_reads_all:
            return None
        return tuple(dict.fromkeys([*sampled, *self._wanted()]))

    def _wanted(self) -> tuple[str, ...]:
        """Returns the columns that loss and model read."""
        views = [key for key in getattr(self.model, "view_requirements", {}) if not key.startswith("state_")]
        states = [f"{STATE_IN_PREFIX}{index}" for index in range(self.num_state_tensors())]
        of_sequences = (VALID_MASK, N_STEPS, BURN_IN, SEQ_LENS) if self.is_recurrent() else (VALID_MASK, SEQ_LENS)
        return tuple(dict.fromkeys([*(self.learn_columns or ()), *views, *states, *of_sequences]))

    def _before_learning(self, samples: SampleBatch) -> dict[str, Any]:
        """Calls `on_learn_on_batch` and returns what it wrote, the `custom_metrics`."""
        custom: dict[str, Any] = {}
        if self._learn_hook is not None:
            self._learn_hook(policy=self, train_batch=samples, result=custom)
        for part in self.components.values():
            part.before_learning(samples)
        return custom

    def _after_learning(self, samples: SampleBatch, info: dict[str, Any]) -> dict[str, Any]:
        """Tells the components of a learner step, and returns its info."""
        for part in self.components.values():
            part.after_learning(samples, info[LEARNER_STATS_KEY])
        return info

    def _learn_result(
        self, stats: Mapping[str, Any], fetches: Mapping[str, Any], custom: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns `{"learner_stats": ..., "model": ..., "custom_metrics": ..., **fetches}` in arrays and numbers.

        What the model's `metrics` says is among the stats of TensorFlow's policies as well: RLlib had it there. A
        `td_error` among the fetches comes with its mean, `mean_td_error`.
        """
        numbers = {key: self._number(value) for key, value in stats.items()}
        of_model = self._told_by_model() if self._model_tells() else {}
        if of_model and self.framework == "tf":
            numbers["model"] = of_model
        result: dict[str, Any] = {LEARNER_STATS_KEY: numbers, "model": of_model, "custom_metrics": custom}
        for key, value in fetches.items():
            if key == LEARNER_STATS_KEY:
                numbers.update({name: self._number(item) for name, item in value.items()})
            else:
                made = value if isinstance(value, (np.ndarray, float)) else self.to_numpy(value)
                result[key] = made.item() if isinstance(made, np.ndarray) and made.ndim == 0 else made
        td_errors = result.get("td_error")
        if isinstance(td_errors, np.ndarray):
            result.setdefault("mean_td_error", float(td_errors.mean()))
        return result

    def _model_tells(self) -> bool:
        """Whether the model has `metrics` of its own."""
        return getattr(self.model.metrics, "__func__", None) is not ModelV2.metrics

    def _told_by_model(self) -> dict[str, Any]:
        return {key: self._number(value) for key, value in self.model.metrics().items()}

    def _number(self, value: Any) -> Any:
        """Returns a Python number for an array or tensor of one element, arrays for others."""
        if isinstance(value, (float, int)):
            return value
        value = self.to_numpy(value)
        return value.item() if isinstance(value, (np.ndarray, np.generic)) and value.size == 1 else value

    def extra_compute_grad_fetches(self) -> dict[str, Any]:
        """Returns further learner output, e.g. `{"td_error": array}`; `learner_stats` in it is merged.

        By default what the loss told by row. The report has the mean of a `td_error`, too.
        """
        told = self._loss_outputs
        return {name: told[name] for name in self._per_row or () if name in told} or self.rows_left()

    def evaluate_loss(self, batch: SampleBatch) -> dict[str, Any]:
        """Returns what `extra_compute_grad_fetches` gives for a batch, in arrays, without learning from it."""
        raise NotImplementedError

    def _weights_changed(self) -> None:
        """Called when the model's variables were written to; a hook for what is kept beside them."""

    def set_learning_rate(self, lr: float) -> None:
        """Sets the rate of every optimiser."""
        raise NotImplementedError

    # --- the rest ---------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """Returns the state with the count of updates and the generator of losses' noise."""
        state = super().get_state()
        if self.num_updates:
            state["_num_updates"] = self.num_updates
        if self._loss_rng is not None:
            state["_loss_rng"] = self._loss_rng.bit_generator.state
        return state

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned."""
        super().set_state(state)
        if "target_network" in self.components and "target_network" not in state.get("_components", {}):
            self.target_network.update()
        self.num_updates = int(state.get("_num_updates", 0))
        if self._loss_rng is not None and "_loss_rng" in state:
            self._loss_rng.bit_generator.state = state["_loss_rng"]

    def is_recurrent(self) -> bool:
        """Returns whether the model carries state."""
        return self.num_state_tensors() > 0

    def num_state_tensors(self) -> int:
        """Returns the number of state arrays."""
        if self._initial_state is None:
            self._initial_state = [self.to_numpy(state) for state in self.model.get_initial_state()]
        return len(self._initial_state)

    def get_initial_state(self) -> list[NDArray[Any]]:
        """Returns the model's state at the start of an episode: arrays without batch dimension."""
        self.num_state_tensors()
        return [np.asarray(state) for state in self._initial_state or ()]
