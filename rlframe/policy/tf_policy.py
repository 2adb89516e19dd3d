"""The TensorFlow policy: acting through NumPy or a traced function, and one traced learner step around a loss."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import DONES, OBS, SEQ_LENS, TERMINATEDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.tf.named_variables import NamedVariables, keeping
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.left_by_shares import merge_left
from rlframe.policy.loss_phases import by_optimizer, keep_reports, phases
from rlframe.policy.nonfinite import explain_nonfinite
from rlframe.policy.parts import RMSPropSpec, merge_kept
from rlframe.policy.policy import State
from rlframe.policy.tf.acting import TFActing
from rlframe.policy.tf.building import TFParts
from rlframe.policy.tf.data_parallel import split_batch
from rlframe.policy.tf.draws import TracedDraws
from rlframe.policy.tf.optimizers import clip_each, load_optimizer, optimizer_state, set_rate, with_tape
from rlframe.policy.tf.rllib_names import RLlibTFPolicyNames
from rlframe.policy.tf.runtime import prepare
from rlframe.policy.tf.second_order import TFSecondOrder
from rlframe.policy.tf.template import derive_class
from rlframe.policy.tf.traced import TracedCalls, tensor_columns
from rlframe.policy.tf.weights import load_weights, to_arrays
from rlframe.policy.users_code import Losses, method
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any
Loss = Callable[..., Any]
Gradients: TypeAlias = list[tuple[Any, Any]]


#: What TensorFlow's error says of a loss that `_traced_learn` found to be no number.
_NOT_FINITE = re.compile(r"loss (\d+) is not finite")


class TFPolicy(RLlibTFPolicyNames, LearningPolicy, TFParts, TFActing):
    """Acts and learns with a TensorFlow model.

    Derive with `build_tf_policy`, or subclass and override `loss`, `optimizer`, `gradients`, `extra_grad_info`,
    `extra_compute_grad_fetches`, `extra_action_out`, `postprocess_trajectory`. What these return is computed inside one
    traced function: tensors are fresh at every step, Python numbers are those of the first. The numbers named in
    `learn_scalars` are the exception: the policy's attributes of these names are tensors while the function is traced,
    and take the attributes' values at each step.

    Args:
        observation_space: Preprocessed observation space.
        action_space: The environment's action space.
        config: The trainer's config.
        model: A `TFModelV2`; None builds the one that `config["model"]` describes.
        loss: `fn(policy, model, dist_class, train_batch) -> scalar tensor, or a list with one per optimiser`.
        action_distribution_class: A TensorFlow distribution class; None takes the action space's own.
        action_sampler_fn: Replaces model, distribution and exploration in acting.
        action_distribution_fn: Replaces the model's forward pass in acting.
        max_seq_len: Longest sequence of a recurrent training batch, in rows; None takes the model's config.
        get_batch_divisibility_req: Number (or function of the policy) that batch sizes must be a multiple of.
    """

    framework = "tf"
    #: Attributes that losses and statistics read as numbers which change between steps.
    learn_scalars: tuple[str, ...] = (
        "cur_lr", "entropy_coeff", "kl_coeff", "target_entropy", "value_mean", "value_std", "rows_learned"
    )  # fmt: skip

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        config: dict[str, Any],
        *,
        model: Any = None,
        loss: Loss | None = None,
        action_distribution_class: Any = None,
        action_sampler_fn: Callable[..., Any] | None = None,
        action_distribution_fn: Callable[..., Any] | None = None,
        max_seq_len: int | None = None,
        get_batch_divisibility_req: int | Callable[[Any], int] | None = None,
    ) -> None:
        super().__init__(observation_space, action_space, config)
        self.devices = prepare(config, observation_space)
        self.device = self.devices[0]
        self.max_seq_len = int(max_seq_len or (config.get("model") or {}).get("max_seq_len", 20))
        self._given_loss = loss
        if action_sampler_fn is not None:
            self._action_sampler_fn = action_sampler_fn
        if action_distribution_fn is not None:
            self._action_distribution_fn = action_distribution_fn
        with tf.device(self.device):
            if model is None:
                with self.seeded("model"):
                    model, default_dist = self.make_model_and_dist()
                action_distribution_class = action_distribution_class or default_dist
            self.model = model
            self.model_gpu_towers = [model]
            self.dist_class = action_distribution_class
            self.numpy_dist: Any = self._numpy_distribution()
            self._add_views_of_model()
            req = get_batch_divisibility_req
            if req is not None:
                self.batch_divisibility_req = req(self) if callable(req) else req
            self.exploration = self._create_exploration()
            self._optimizers = self._make_optimizers()
            if self.target_networks:
                self._make_target_network(self.target_networks)
        self._learn_calls = TracedCalls(
            self._traced_learn, bool(config.get("jit_compile")), max_traces=config.get("eager_max_retraces")
        )
        self._gradient_calls = TracedCalls(self._traced_gradients)
        self._loss_calls = TracedCalls(self._traced_loss)
        self._act_calls = TracedCalls(self._traced_forward)
        self._draws = TracedDraws(self)
        self._apply_calls = TracedCalls(self._traced_apply)
        self._scalar_tensors: dict[str, tuple[float, Tensor]] = {}
        with tf.device(self.device):
            self.components.update(self.make_components())

    # --- building ---------------------------------------------------------------------------------------------

    @classmethod
    def with_updates(cls, name: str | None = None, **hooks: Any) -> type[TFPolicy]:
        """Returns a policy class with some hooks replaced; they are those of `build_tf_policy`."""
        return derive_class(cls, name, hooks)

    @classmethod
    def as_eager(cls) -> type[TFPolicy]:
        """Returns the class itself: it is eager around one traced function."""
        return cls

    @classmethod
    def with_tracing(cls) -> type[TFPolicy]:
        """Returns the class itself: its learner step is always traced."""
        return cls

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor | list[Tensor]:
        """Returns the loss of one batch, of tensors or arrays: a scalar, or a list with one per optimiser."""
        if self._given_loss is None:
            raise NotImplementedError(f"{type(self).__name__} has no loss: pass loss_fn, or override loss()")
        return self._given_loss(self, model, dist_class, self.as_tensors(train_batch))

    def _loss_of_zeros(self, samples: SampleBatch, stats_fn: Callable[[Any, Any], Any] | None) -> None:
        with tf.device(self.device):
            columns = tensor_columns(self._learned_columns(samples))
            batch = self._batch_of(tf.nest.map_structure(tf.convert_to_tensor, columns))
            with keeping(self._made_by_loss()):
                if self._has_own_loss():
                    method(self, "loss")(self.model, self.dist_class, batch)
                if stats_fn is not None:
                    stats_fn(self, batch)

    def _made_by_loss(self) -> NamedVariables:
        """Returns the variables that the loss makes by name; they are not the model's, so gradients name them."""
        made: NamedVariables = self.__dict__.setdefault("_named_variables", NamedVariables())
        return made

    @property
    def trace_count(self) -> int:
        """How often the learner step was traced; it stays what it is once every kind of batch has occurred."""
        return self._learn_calls.traces

    def _update(self, samples: SampleBatch) -> tuple[dict[str, Any], dict[str, Any]]:
        self._start_update()
        columns = self._learned_columns(samples)
        try:
            made = self._learn_calls(tensor_columns(columns), self._scalars(), due=self._due)
        except tf.errors.InvalidArgumentError as error:
            found = _NOT_FINITE.search(str(error))
            if found is None:
                raise
            value = math.nan if "NaN" in str(error) else math.inf
            raise explain_nonfinite(int(found[1]), value, self, samples) from None
        self._weights_changed()
        self._forget_symbols(columns)
        self._check_losses(made["losses"], samples)
        self._traced_metrics = made["metrics"]
        return {"allreduce_latency": 0.0, **made["stats"]}, made["fetches"]

    def _forget_symbols(self, columns: Mapping[str, Any]) -> None:
        """Has the model's `value_function()` speak of a learner step's rows: what it kept are symbols of the trace."""
        if SEQ_LENS not in columns and OBS in columns and hasattr(self.model, "acted_on"):
            self.model.acted_on(columns[OBS])

    def _check_losses(self, losses: Sequence[float], samples: SampleBatch) -> None:
        for index, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise explain_nonfinite(index, loss, self, samples)

    def _scalars(self) -> dict[str, Tensor]:
        """Returns the attributes named in `learn_scalars` as tensors, made anew only where a value has changed."""
        made = {}
        for name in self.learn_scalars:
            value = self.__dict__.get(name)
            if not isinstance(value, (int, float)):
                continue
            known = self._scalar_tensors.get(name)
            if known is None or known[0] != value:
                known = self._scalar_tensors[name] = (value, tf.constant(value, tf.float32))
            made[name] = known[1]
        return made

    @contextlib.contextmanager
    def _symbolic(self, scalars: Mapping[str, Tensor]) -> Iterator[None]:
        """A context in which the attributes named in `scalars` are these tensors."""
        numbers = {name: self.__dict__[name] for name in scalars}
        self.__dict__.update(scalars)
        try:
            with keeping(self._made_by_loss()):
                yield
        finally:
            self.__dict__.update(numbers)

    def _traced_learn(
        self, columns: Mapping[str, Tensor], scalars: Mapping[str, Tensor], due: frozenset[str]
    ) -> dict[str, Any]:
        """Computes losses and gradients and applies them, phase by phase: one whole learner step.

        Args:
            columns: The batch.
            scalars: Values of `learn_scalars`.
            due: Names of the optimisers that step, which a trace is made for.
        """
        del due
        with self._symbolic(scalars):
            batch, every, seen = self._batch_of(columns), [], []
            self._grad_stats: dict[str, Any] = {}
            for losses, gradients in self._phases(batch):
                indices = list(losses)
                values = [tf.cast(losses[index], tf.float32) for index in indices]
                # A loss that is no number must not reach the weights. Zeros in place of gradients would move Adam.
                if self.config.get("jit_compile"):  # XLA cannot stop halfway
                    finite = tf.reduce_all(tf.math.is_finite(tf.stack(values)))
                    tf.cond(finite, functools.partial(self._apply, gradients), lambda: tf.constant(False))
                else:
                    checks = [
                        tf.debugging.check_numerics(value, f"loss {index} is not finite")
                        for index, value in zip(indices, values, strict=True)
                    ]
                    with tf.control_dependencies(checks):
                        self._apply(gradients)
                every += values
                seen += [gradient for gradient, _ in _flat(gradients.values())]
            stats = {**self._grad_stats, **self.extra_grad_info(batch), **self.grad_stats(batch, seen)}
            fetches = self.extra_compute_grad_fetches()
            return {"losses": every, "stats": stats, "fetches": fetches, "metrics": self._metrics_in_trace()}

    def _get_is_training_placeholder(self) -> bool:
        """Returns what losses that are copies of RLlib's give models as `is_training`."""
        return True

    def _metrics_in_trace(self) -> dict[str, Tensor]:
        """Returns the tensors among the model's `metrics`: what its `custom_loss` or `forward` kept in this step."""
        told = self.model.metrics() if self._model_tells() else {}
        alone = {
            key: value[0] if isinstance(value, Losses) and len(value) == 1 else value for key, value in told.items()
        }
        made = {key: value for key, value in alone.items() if any(map(tf.is_symbolic_tensor, tf.nest.flatten(value)))}
        self._metrics_outside = len(made) < len(told)
        return made

    def _told_by_model(self) -> dict[str, Any]:
        told = self.model.metrics() if self._metrics_outside else {}
        outside = {key: self._number(value) for key, value in told.items() if key not in self._traced_metrics}
        return {key: self._number(value) for key, value in self._traced_metrics.items()} | outside

    def _batch_of(self, columns: Mapping[str, Tensor]) -> SampleBatch:
        """Returns columns of tensors as the batch that a loss gets; with "tf" `dones` are floats, as in RLlib."""
        batch = SampleBatch.from_columns(dict(columns))
        if self.config["framework"] == "tf" and (DONES in batch or TERMINATEDS in batch):
            batch[DONES] = tf.cast(batch[DONES], tf.float32)
        batch.set_training(True)
        return batch

    def _phases(self, batch: SampleBatch) -> Iterator[tuple[dict[int, Tensor], dict[int, Gradients]]]:
        """Yields losses and (gradient, variable) pairs by the index of their optimiser, one phase after the other."""
        running = self._losses_in_phases(batch)
        # A program's hook may ask for gradients of several losses that it kept.
        own = type(self).gradients is not TFPolicy.gradients or "gradients" in vars(self)
        while True:
            with tf.GradientTape(persistent=own or len(self._optimizers) > 1) as tape:
                losses = next(running, None)  # the loss runs in here, up to where it returns or yields
            if losses is None:
                return
            gradients = {
                index: method(self, "gradients")(with_tape(self._optimizers[index], tape), loss)
                for index, loss in losses.items()
            }
            yield losses, gradients

    def _losses_in_phases(self, batch: SampleBatch) -> Iterator[dict[int, Tensor]]:
        """Yields the losses of a batch of tensors by the index of their optimiser, one phase after the other."""
        if len(self.devices) > 1:
            yield self._losses_of_shares(batch)
            return
        for losses in phases(self, method(self, "loss")(self.model, self.dist_class, batch), batch):
            yield {index: _summed(loss) for index, loss in losses.items()}

    def _losses_of_shares(self, batch: SampleBatch) -> dict[int, Tensor]:
        """Returns the losses of a batch of which each device computes a share; keeps what the losses kept, merged."""
        made, kept, left, weights = [], [], [], []
        for device, (part, weight) in zip(
            self.devices, split_batch(batch, len(self.devices), self.counted_rows), strict=True
        ):
            with tf.device(device):
                losses = by_optimizer(self, method(self, "loss")(self.model, self.dist_class, part), part)
                made.append({index: _summed(loss) * weight for index, loss in losses.items()})
            kept.append(self._loss_outputs)
            left.append(dict(getattr(self.model, "tower_stats", {})))
            weights.append(weight)
        join = functools.partial(tf.concat, axis=0)
        self._loss_outputs = merge_kept(kept, weights, join)
        if any(left):
            self.model.tower_stats.update(merge_left(left, weights, join))
        return {index: tf.add_n([losses[index] for losses in made]) for index in made[0]}

    def gradients(self, optimizer: Any, loss: Tensor) -> Gradients:
        """Returns (gradient, variable) pairs of one loss; clip here.

        Args:
            optimizer: The optimiser, with `compute_gradients(loss, variables)` as TensorFlow 1 had it.
            loss: Scalar.
        """
        spec = self._spec_of(optimizer)
        if spec is None:
            made: Gradients = optimizer.compute_gradients(loss, self.model.trainable_variables())
            return made
        pairs = optimizer.compute_gradients(loss, list(self.weights_of(spec.networks).values()))
        prefix = "" if len(self._optimizers) == 1 else f"{optimizer.label}_"
        if spec.clip_each is not None:
            pairs, self._grad_stats[f"{prefix}gnorm"] = clip_each(pairs, spec.clip_each)
        return self.clip_gradients(pairs, self.grad_limit(spec), f"{prefix}grad_gnorm")

    def clip_gradients(
        self, gradients: Gradients, grad_clip: float | Tensor | None, stat: str = "grad_gnorm"
    ) -> Gradients:
        """Returns gradients scaled so that their global L2 norm is at most `grad_clip`; None leaves them.

        The norm before clipping is reported as `stat`.
        """
        if not tf.is_tensor(grad_clip) and not grad_clip:
            return gradients
        known = [gradient for gradient, _ in gradients if gradient is not None]
        norm = tf.linalg.global_norm(known)
        self._grad_stats[stat] = norm
        scale = tf.minimum(grad_clip / norm, 1.0)  # 1 where the limit is infinite, or the norm 0
        return [(None if gradient is None else gradient * scale, variable) for gradient, variable in gradients]

    def _apply(self, gradients: Mapping[int, Gradients]) -> Tensor:
        for index, pairs in gradients.items():
            self.apply_optimizer(self._optimizers[index], [pair for pair in pairs if pair[0] is not None])
        return tf.constant(True)

    def apply_optimizer(self, optimizer: Any, grads_and_vars: Gradients) -> None:
        """Lets one optimiser do its step."""
        spec = self._spec_of(optimizer)
        if isinstance(spec, RMSPropSpec):
            optimizer.apply_gradients(grads_and_vars, self.epsilon(spec))
        else:
            optimizer.apply_gradients(grads_and_vars)

    def keep(self, **stats: Tensor) -> None:
        """Keeps what the loss computed beside the loss, for the learner's report."""
        self._loss_outputs = dict(stats)

    def grad_stats(self, train_batch: SampleBatch, gradients: list[Any]) -> dict[str, Any]:
        """Returns learner statistics of the gradients (tensors, None for unused variables)."""
        return {}

    def compute_gradients(self, postprocessed_batch: SampleBatch) -> tuple[list[Any], dict[str, Any]]:
        """Returns the gradients of a batch as arrays, one per trainable variable (None where unused), and the info."""
        with self._policy_lock:
            self._refuse_gradients_apart()
            custom = self._before_learning(postprocessed_batch)
            self._start_update()
            columns = tensor_columns(self._learned_columns(postprocessed_batch))
            made = self._gradient_calls(columns, self._scalars(), due=self._due)
            self._forget_symbols(columns)
            self._check_losses(made["losses"], postprocessed_batch)
            self._traced_metrics = made["metrics"]
            gradients = [made["gradients"].get(str(index)) for index in range(len(self.model.trainable_variables()))]
            return gradients, self._learn_result({"allreduce_latency": 0.0, **made["stats"]}, made["fetches"], custom)

    def _traced_gradients(
        self, columns: Mapping[str, Tensor], scalars: Mapping[str, Tensor], due: frozenset[str]
    ) -> dict[str, Any]:
        del due
        with self._symbolic(scalars):
            batch = self._batch_of(columns)
            self._grad_stats = {}
            made = list(itertools.islice(self._phases(batch), 2))
            if len(made) > 1:
                raise ValueError(
                    f"{type(self).__name__} learns in phases, each of which steps before the next: it has no gradients "
                    "to compute apart; call learn_on_batch()"
                )
            losses, gradients = made[0]
            index = {variable.ref(): str(i) for i, variable in enumerate(self.model.trainable_variables())}
            pairs = list(_flat(gradients.values()))
            found = {index[variable.ref()]: gradient for gradient, variable in pairs if gradient is not None}
            of_gradients = self.grad_stats(batch, [gradient for gradient, _ in pairs])
            return {
                "losses": list(losses.values()),
                "gradients": found,
                "stats": {**self._grad_stats, **self.extra_grad_info(batch), **of_gradients},
                "fetches": self.extra_compute_grad_fetches(),
                "metrics": self._metrics_in_trace(),
            }

    def apply_gradients(self, gradients: Sequence[Any]) -> None:
        """Applies gradients as `compute_gradients` returns them; optimisers that none of them is for do not step."""
        # Of a scalar variable, compute_gradients returns a number.
        given = {str(index): np.asarray(gradient, np.float32) if isinstance(gradient, float) else gradient
                 for index, gradient in enumerate(gradients) if gradient is not None}  # fmt: skip
        self._apply_calls(given, self._scalars())
        self._weights_changed()

    def _traced_apply(self, gradients: Mapping[str, Tensor], scalars: Mapping[str, Tensor]) -> dict[str, Any]:
        variables = self.model.trainable_variables()
        pairs = [(gradient, variables[int(index)]) for index, gradient in gradients.items()]
        with self._symbolic(scalars):
            for optimizer in self._optimizers:
                spec = self._spec_of(optimizer)
                own = None if spec is None else {variable.ref() for variable in self.weights_of(spec.networks).values()}
                mine = [pair for pair in pairs if own is None or pair[1].ref() in own]
                if mine or len(self.optimizer_specs) < 2:
                    self.apply_optimizer(optimizer, mine)
        return {}

    def evaluate_loss(self, batch: SampleBatch) -> dict[str, Any]:
        """Returns what `extra_compute_grad_fetches` gives for a batch, in arrays, without learning from it."""
        return self._loss_calls(tensor_columns(batch), self._scalars())

    def _traced_loss(self, columns: Mapping[str, Tensor], scalars: Mapping[str, Tensor]) -> dict[str, Any]:
        with self._symbolic(scalars):
            batch = self._batch_of(columns)
            batch.set_training(False)
            keep_reports(self, method(self, "loss")(self.model, self.dist_class, batch))
            return self.extra_compute_grad_fetches()

    def second_order(self, name: str) -> TFSecondOrder:
        """Returns the loss of networks that the policy steps itself, and its `divergence`, with their derivatives."""
        return TFSecondOrder(self, name)

    def _weights_changed(self) -> None:
        if self._mirror is not None:
            self._mirror.stale = True

    def set_learning_rate(self, lr: float) -> None:
        """Sets the rate of every optimiser whose spec does not hold it constant."""
        for optimizer in self._scheduled_optimizers():
            set_rate(optimizer, lr)

    def to_numpy(self, value: Any) -> Any:
        """Returns tensors, nested or not, as arrays."""
        return tf.nest.map_structure(lambda leaf: leaf.numpy() if tf.is_tensor(leaf) else leaf, value)

    def assign(self, variable: Any, array: NDArray[Any]) -> None:
        """Writes an array into a variable."""
        variable.assign(array)

    def to_tensors(self, value: Any) -> Any:
        """Returns arrays, nested or not, as tensors."""
        return tf.nest.map_structure(tf.convert_to_tensor, value)

    def _learn_result(
        self, stats: Mapping[str, Any], fetches: Mapping[str, Any], custom: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns what is told of a learner step, the mean TD error among the statistics, too, as in RLlib."""
        result = super()._learn_result(stats, fetches, custom)
        if "mean_td_error" in result:
            result[LEARNER_STATS_KEY].setdefault("mean_td_error", result["mean_td_error"])
        return result

    # --- weights and state ------------------------------------------------------------------------------------

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the model's variables, `{name: array}`; named and laid out as torch's."""
        return {**to_arrays(self.model.named_variables()), **self._extra_weights()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Copies `{name: array}` into the model.

        Raises:
            ValueError: If names or shapes do not fit; nothing is changed then.
        """
        load_weights(self.model.named_variables(), self._network_weights(weights), owner=type(self).__name__)
        self._weights_changed()
        for part in self.components.values():
            part.take_extra(weights)

    def weights_norm(self) -> Tensor:
        """Returns the global L2 norm of the weights, a scalar."""
        return tf.linalg.global_norm(self.model.trainable_variables())

    def get_state(self) -> State:
        """Returns weights, optimiser, exploration, schedules' clock and random streams, by the state convention."""
        state = super().get_state()
        state["_optimizer_variables"] = [optimizer_state(optimizer) for optimizer in self._optimizers]
        state["_tf_rng"] = {name: np.array(made.state.numpy()) for name, made in self._generators().items()}
        return state

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned, of this framework or, for built-in models, of another."""
        super().set_state(state)
        for optimizer, saved in zip(self._optimizers, self.optimizer_states(state), strict=False):
            load_optimizer(optimizer, saved)
        generators = self._generators()
        for name in state.get("_tf_rng", {}).keys() & generators.keys():
            generators[name].reset(np.asarray(state["_tf_rng"][name]))
        self._scalar_tensors.clear()
        self.restore_schedules(state)

    def _generators(self) -> dict[str, Any]:
        """Returns the random streams that layers of the policy's networks own, by name."""
        roles = self._modules_by_role()
        seeds = {f"{role}.{name}": seed for role, model in roles.items() for name, seed in model.seeds().items()}
        layers = {f"{role}.{name}": layer for role, model in roles.items() for name, layer in vars(model).items()}
        found = {name: getattr(layer, "generator", None) for name, layer in layers.items()}
        return seeds | {name: made for name, made in found.items() if isinstance(made, tf.random.Generator)}

    def export_model(self, export_dir: str, onnx: int | None = None) -> None:
        """Writes the model as a SavedModel with RLlib's signature; see `write_saved_model`."""
        if onnx is not None:
            raise ValueError(
                f"onnx: got {onnx}, but TensorFlow models are exported as SavedModel; leave it out, or convert the "
                "checkpoint with `rlframe convert --framework torch` and export that"
            )
        from rlframe.policy.tf.saved_model import write_saved_model

        write_saved_model(self, export_dir)


def _summed(loss: Any) -> Any:
    """Returns a loss as a scalar: of one for each row the sum, as TensorFlow's own gradients have it.

    What comes from a `tf.py_function` has no known shape.
    """
    return loss if tf.TensorShape(getattr(loss, "shape", ())).rank == 0 else tf.reduce_sum(loss)


def _flat(gradients: Iterable[Gradients]) -> Gradients:
    return [pair for pairs in gradients for pair in pairs]


TFPolicy._plain = TFPolicy
