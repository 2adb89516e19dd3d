"""The PyTorch policy: acting through NumPy or torch, and one learner step around a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlframe.data.columns import SEQ_LENS
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.loss_phases import keep_reports, phases
from rlframe.policy.nonfinite import explain_nonfinite
from rlframe.policy.parts import RMSPropSpec
from rlframe.policy.policy import State
from rlframe.policy.torch.acting import TorchActing
from rlframe.policy.torch.arrays import load_weights, to_arrays
from rlframe.policy.torch.building import TorchParts
from rlframe.policy.torch.devices import choose_devices
from rlframe.policy.torch.flat import FlatParameters, any_frozen, step_flushing_denormals
from rlframe.policy.torch.flat_optimizers import FlatOptimizer
from rlframe.policy.torch.gradients import TorchGradients, apply_gradients, clip_each, compute_gradients
from rlframe.policy.torch.optimizer_states import load_optimizer, optimizer_state
from rlframe.policy.torch.template import derive_class
from rlframe.policy.torch.threads import multiplications
from rlframe.policy.torch.transfers import SMALL_BYTES, download, upload
from rlframe.policy.users_code import method
from rlframe.utils.threads import Threads, blas_in_one_thread

Loss = Callable[..., Any]


class TorchPolicy(LearningPolicy, TorchParts, TorchActing, TorchGradients):
    """Acts and learns with a PyTorch model.

    Derive with `build_policy_class`, or subclass and override `loss`, `optimizer`, `extra_grad_process`,
    `extra_grad_info`, `extra_action_out`, `postprocess_trajectory`.

    Args:
        observation_space: Preprocessed observation space.
        action_space: The environment's action space.
        config: The trainer's config.
        model: A `TorchModelV2`; None builds the one that `config["model"]` describes.
        loss: `fn(policy, model, dist_class, train_batch) -> scalar tensor, or a list with one per optimiser`.
        action_distribution_class: A torch distribution class; None takes the action space's own.
        action_sampler_fn: Replaces model, distribution and exploration in acting.
        action_distribution_fn: Replaces the model's forward pass in acting.
        max_seq_len: Longest sequence of a recurrent training batch, in rows; None takes the model's config.
        get_batch_divisibility_req: Number (or function of the policy) that batch sizes must be a multiple of.
    """

    framework = "torch"

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
        self.devices = choose_devices(config)
        self.device = self.devices[0]
        self.max_seq_len = int(max_seq_len or (config.get("model") or {}).get("max_seq_len", 20))
        self._given_loss = loss
        if action_sampler_fn is not None:
            self._action_sampler_fn = action_sampler_fn
        if action_distribution_fn is not None:
            self._action_distribution_fn = action_distribution_fn
        if model is None:
            with self.seeded("model"):
                model, default_dist = self.make_model_and_dist()
            action_distribution_class = action_distribution_class or default_dist
        self.model: Any = model.to(self.device)
        self.model_gpu_towers = [self.model]
        work = multiplications(self.model, getattr(self.observation_space, "shape", None) or ())
        self._threads = Threads(torch, work, config.get("learner_threads"))
        self.dist_class = action_distribution_class
        self.numpy_dist: Any = self._numpy_distribution()
        self._add_views_of_model()
        req = get_batch_divisibility_req
        if req is not None:
            self.batch_divisibility_req = req(self) if callable(req) else req
        self.exploration = self._create_exploration()
        self._flat_parameters: FlatParameters | None = None
        self._replicas = None
        #: `fn(train_batch) -> loss, or losses by optimiser`, that fills the gradients itself; None goes by autograd.
        self.without_autograd: Callable[[SampleBatch], Tensor | Mapping[str, Tensor]] | None = None
        self._optimizers = self._make_optimizers()
        if self.target_networks:
            self._make_target_network(self.target_networks)
        self.components.update(self.make_components())
        fused = self.fused_gradients.find(self) if self.fused_gradients else None
        if fused is not None:
            self.without_autograd = fused.of(self)

    # --- building ---------------------------------------------------------------------------------------------

    @classmethod
    def with_updates(cls, name: str | None = None, **hooks: Any) -> type[TorchPolicy]:
        """Returns a policy class with some hooks replaced; they are those of `build_policy_class`."""
        return derive_class(cls, name, hooks)

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor | list[Tensor]:
        """Returns the loss of one batch of tensors: a scalar, or a list with one per optimiser."""
        if self._given_loss is None:
            raise NotImplementedError(f"{type(self).__name__} has no loss: pass loss_fn, or override loss()")
        result: Tensor | list[Tensor] = self._given_loss(self, model, dist_class, train_batch)
        return result

    def _update(self, samples: SampleBatch) -> tuple[dict[str, Any], dict[str, Any]]:
        batch = self._batch_to_learn(samples)
        stats: dict[str, Any] = {"allreduce_latency": 0.0}
        with blas_in_one_thread():
            for stepping in self._backward(batch, samples, stats):
                for index in stepping:
                    step_flushing_denormals(self._optimizers[index])
        stats.update(self.extra_grad_info(batch))
        fetches = self.extra_compute_grad_fetches()
        if self.device.type != "cpu":
            stats, fetches = download(stats, self.device), download(fetches, self.device)
        return stats, fetches

    def _batch_to_learn(self, samples: SampleBatch) -> SampleBatch:
        """Begins an update: returns the batch as tensors."""
        if not self.model.training:
            self.model.train()
        if not self._is_updating:  # begun already
            self._start_update()
        batch = self._lazy_tensor_dict(self._learned_columns(samples))
        batch.set_training(True)
        self._threads.use(samples.count)
        return batch

    def _backward(self, batch: SampleBatch, samples: SampleBatch, stats: dict[str, Any]) -> Iterator[Iterable[int]]:
        """Yields, phase by phase, the indices of the optimisers whose gradients are there now.

        Args:
            batch: Tensors.
            samples: What they were made of, for error messages.
            stats: Takes the statistics of `extra_grad_process`.
        """
        alone = len(self.devices) == 1 and not self.distributed_world_size
        by_hand = None if "loss" in vars(self) else self.without_autograd  # not of a loss that a program puts there
        if by_hand is not None and alone and not any_frozen(self._optimizers):
            made = by_hand(batch)
            named = made if isinstance(made, Mapping) else dict.fromkeys(self.optimizer_specs, made)
            losses = {index: named[name] for index, name in enumerate(self.optimizer_specs) if name in named}
            values = losses if self.device.type == "cpu" else download(losses, self.device)
            for index, loss in losses.items():
                self.check_finite_loss(values[index], index, samples)
                stats.update(self.extra_grad_process(self._optimizers[index], loss))
            yield losses
        elif len(self.devices) == 1:
            loss_of = self.loss if callable(self.loss) else method(self, "loss")  # a program keeps something else there
            for losses in phases(self, loss_of(self.model, self.dist_class, batch), batch):
                self._fill_gradients({index: [(loss, 1.0)] for index, loss in losses.items()}, samples, stats)
                yield losses
        else:
            shares = self._make_replicas().losses(batch)
            self._fill_gradients(shares, samples, stats)
            yield shares

    def check_finite_loss(self, loss: Tensor | float, index: int, samples: SampleBatch) -> None:
        """Raises an error that names what was first to be NaN or infinite, if the loss of an optimiser is.

        Raises:
            NonFiniteError: Names a weight, else a column of the batch, else the loss.
        """
        value = loss.item() if isinstance(loss, Tensor) else loss
        if not math.isfinite(value):
            raise explain_nonfinite(index, value, self, samples)

    def _flat_of(self, optimizer: torch.optim.Optimizer) -> FlatParameters | None:
        """Returns the buffer that an optimiser's parameters lie in; None where they lie apart."""
        return optimizer.flat if isinstance(optimizer, FlatOptimizer) else self._flat_parameters

    def compute_gradients(self, postprocessed_batch: SampleBatch) -> tuple[list[Any], dict[str, Any]]:
        """Returns the gradients of one batch as arrays, one per parameter (None where unused), and the info."""
        with self._policy_lock:
            return compute_gradients(self, postprocessed_batch)

    def apply_gradients(self, gradients: Sequence[Any]) -> None:
        """Applies gradients as `compute_gradients` returns them; optimisers that none of them is for do not step."""
        apply_gradients(self, gradients)

    def evaluate_loss(self, batch: SampleBatch) -> dict[str, Any]:
        """Returns what `extra_compute_grad_fetches` gives for a batch, in arrays, without learning from it."""
        with torch.no_grad():
            keep_reports(self, method(self, "loss")(self.model, self.dist_class, self._lazy_tensor_dict(batch)))
        made: dict[str, Any] = _numpy(self.extra_compute_grad_fetches())
        return made

    def set_learning_rate(self, lr: float) -> None:
        """Sets the rate of every optimiser whose spec does not hold it constant."""
        for optimizer in self._scheduled_optimizers():
            for group in optimizer.param_groups:
                group["lr"] = lr

    def _number(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.numel() == 1:  # without an array in between
            return value.item()
        return super()._number(value)

    def to_numpy(self, value: Any) -> Any:
        """Returns tensors, nested or not, as arrays."""
        return _numpy(value)

    def to_tensors(self, value: Any) -> Any:
        """Returns arrays, nested or not, as tensors on the policy's device."""
        return _tensors(value, self.device)

    def assign(self, variable: Tensor, array: NDArray[Any]) -> None:
        """Writes an array into a parameter or buffer."""
        with torch.no_grad():
            variable.copy_(torch.from_numpy(array))

    def clip_gradients(self, optimizer: torch.optim.Optimizer, grad_clip: float | None) -> dict[str, Any]:
        """Scales the gradients so that their global L2 norm is at most `grad_clip`; None leaves them.

        Returns:
            `{"grad_gnorm": norm before clipping}`, `{}` for None.
        """
        if not grad_clip:
            return {}
        flat = self._flat_of(optimizer)
        if flat is not None:
            norm = float(flat.norm())
            if norm > grad_clip:
                flat.grad.mul_(grad_clip / norm)
            return {"grad_gnorm": norm}
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        return {"grad_gnorm": nn.utils.clip_grad_norm_(parameters, grad_clip)}

    def keep(self, **stats: Tensor | float) -> None:
        """Keeps what the loss computed beside the loss, for the learner's report."""
        self._loss_outputs = {
            name: value.detach() if isinstance(value, Tensor) else value for name, value in stats.items()
        }

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> dict[str, Any]:
        """Called after `backward`, before the step; clip gradients here. Returns statistics."""
        if not self.optimizer_specs:
            return {}
        name, spec = list(self.optimizer_specs.items())[self._optimizers.index(optimizer)]
        if isinstance(spec, RMSPropSpec):
            for group in optimizer.param_groups:
                group["eps"] = self.epsilon(spec)
        stats = {} if spec.clip_each is None else {"gnorm": clip_each(self._parameters_of(optimizer), spec.clip_each)}
        stats.update(self.clip_gradients(optimizer, self.grad_limit(spec)))
        if len(self._optimizers) == 1:
            return stats
        return {f"{name}_{stat}": value for stat, value in stats.items()}

    def _lazy_tensor_dict(self, batch: SampleBatch, device: torch.device | None = None) -> SampleBatch:
        """Returns the batch with its numeric columns as tensors on the device (no copy on CPU).

        float64 becomes float32; integers keep their type; text and object columns such as `infos` stay as they are.
        """
        target = self.device if device is None else device
        small = {} if target.type == "cpu" else upload(_small_arrays(batch), target)
        tensors = {key: small[key] if key in small else _tensors(value, target) for key, value in batch.items()}
        made = SampleBatch.from_columns(tensors)
        if SEQ_LENS in batch:
            made.max_seq_len = getattr(batch, "max_seq_len", None)
        return made

    # --- weights and state ------------------------------------------------------------------------------------

    def weights_norm(self) -> Tensor:
        """Returns the global L2 norm of the weights, a scalar."""
        weights = list(self.model.parameters()) if self._flat_parameters is None else [self._flat_parameters.param]
        norm: Tensor = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(w.detach()) for w in weights]))
        return norm

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the model's parameters and buffers, `{name: array}`."""
        return {**to_arrays(self.model.state_dict()), **self._extra_weights()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Copies `{name: array}` into the model.

        Raises:
            ValueError: If names or shapes do not fit; nothing is changed then.
        """
        load_weights(self.model, self._network_weights(weights), owner=type(self).__name__)
        for part in self.components.values():
            part.take_extra(weights)

    def get_state(self) -> State:
        """Returns weights, optimiser, exploration, schedules' clock and random streams, by the state convention."""
        state = super().get_state()
        state["_optimizer_variables"] = [optimizer_state(self.model, optimizer) for optimizer in self._optimizers]
        state["_torch_rng"] = {
            name: generator.get_state().numpy().copy() for name, generator in self._generators().items()
        }
        return state

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned."""
        super().set_state(state)
        for optimizer, saved in zip(self._optimizers, self.optimizer_states(state), strict=False):
            load_optimizer(self.model, optimizer, saved)
        generators = self._generators()
        for name in state.get("_torch_rng", {}).keys() & generators.keys():
            generators[name].set_state(torch.from_numpy(np.array(state["_torch_rng"][name], np.uint8)))
        self.restore_schedules(state)

    def export_model(self, export_dir: str, onnx: int | None = None) -> None:
        """Writes the model as TorchScript (`model.pt`) or as ONNX; see `export_torch_model`."""
        from rlframe.policy.torch.export import export_torch_model

        export_torch_model(self, export_dir, onnx)


def _small_arrays(batch: SampleBatch) -> dict[str, NDArray[Any]]:
    """Returns the columns that travel to a device together, as their tensors have them."""
    columns = {key: value for key, value in batch.items() if isinstance(value, np.ndarray)}
    return {
        key: value.astype(np.float32) if value.dtype == np.float64 else value
        for key, value in columns.items()
        if value.dtype.kind not in "OUS" and value.nbytes <= SMALL_BYTES
    }


def _tensors(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OUS":
            return value
        if value.dtype == np.float64:
            value = value.astype(np.float32)
        elif not value.flags.writeable:
            value = value.copy()
        tensor = torch.from_numpy(value)
        return tensor if device.type == "cpu" else tensor.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {key: _tensors(part, device) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_tensors(part, device) for part in value)
    array = np.asarray(value)
    return array if array.dtype.kind in "OUS" else torch.as_tensor(array, device=device)


def _numpy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, (tuple, list)):
        return type(value)(_numpy(part) for part in value)
    if isinstance(value, Mapping):
        return {key: _numpy(part) for key, part in value.items()}
    return value


TorchPolicy._plain = TorchPolicy
