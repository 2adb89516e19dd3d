"""The PyTorch policy: acting through NumPy or torch, and one learner step around a loss."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlframe.config.common import ONLY_EVALUATES
from rlframe.data.columns import OBS, SEQ_LENS, VF_PREDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.modelv2 import states_of
from rlframe.models.torch.check_model import check_model
from rlframe.models.torch.networks import SomeNetworks
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.nonfinite import explain_nonfinite
from rlframe.policy.own_inference import sampled
from rlframe.policy.parts import WHOLE_MODEL, OptimizerSpec, RMSPropSpec, by_optimizer, keep_reports, phases
from rlframe.policy.policy import State
from rlframe.policy.torch import distributed
from rlframe.policy.torch.arrays import load_weights, to_arrays
from rlframe.policy.torch.data_parallel import DataParallel
from rlframe.policy.torch.devices import Threads, choose_devices
from rlframe.policy.torch.flat import (
    FlatAdam,
    FlatOptimizer,
    FlatParameters,
    FlatRMSProp,
    TargetNetwork,
    flatten_parameters,
)
from rlframe.policy.torch.gradients import apply_gradients, compute_gradients
from rlframe.policy.torch.optimizer_states import load_optimizer, optimizer_state
from rlframe.policy.torch.second_order import TorchSecondOrder
from rlframe.policy.torch.template import derive_class
from rlframe.policy.users_code import method
from rlframe.utils.threads import blas_in_one_thread

Loss = Callable[..., Any]


class TorchPolicy(LearningPolicy):
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
        self._loss = loss
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
        self._threads = Threads(self.model, self.observation_space, config.get("learner_threads"))
        self.dist_class = action_distribution_class
        self.numpy_dist: Any = self._numpy_distribution()
        self.view_requirements.update(getattr(self.model, "view_requirements", {}))
        req = get_batch_divisibility_req
        if req is not None:
            self.batch_divisibility_req = req(self) if callable(req) else req
        self.exploration = self._create_exploration()
        self._flat_parameters: FlatParameters | None = None
        self._replicas: DataParallel | None = None
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

    def seeded(self, *path: int | str) -> Any:
        """Returns a context in which torch draws from this policy's own stream named by `path`."""
        return _SeededTorch(self.stream_seed(*path))

    def check_model(self, model: Any, num_outputs: int | None) -> None:
        """Raises a ValueError where the model gives something else than `num_outputs` numbers per row."""
        check_model(model, self.observation_space, num_outputs, values=self.wants_values or self.learns_values)

    def _make_optimizers(self) -> list[torch.optim.Optimizer]:
        if self.config.get(ONLY_EVALUATES):
            return []
        made = self.optimizer()
        optimizers = list(made) if isinstance(made, (list, tuple)) else [made]
        replaced = self.exploration.get_exploration_optimizer(optimizers)
        return optimizers if replaced is None else list(replaced)

    def optimizer(self) -> torch.optim.Optimizer | list[torch.optim.Optimizer]:
        """Returns the optimiser(s): those of `optimizers`, or Adam with `config["lr"]` on all parameters."""
        if not self.optimizer_specs:
            return self.adam(self.model.parameters(), lr=self.config["lr"])
        made = [self._made_of(spec, list(weights.values())) for spec, weights in self._weights_by_optimizer()]
        if len(made) > 1 or self.own_steps:
            self._flat_parameters = None  # each optimiser has a buffer of its own
        return made

    def _made_of(self, spec: OptimizerSpec, parameters: list[Any]) -> torch.optim.Optimizer:
        """Returns the optimiser that a spec describes, over parameters in one buffer where they can share one."""
        if not isinstance(spec, RMSPropSpec):
            return self.adam(parameters, lr=spec.lr, eps=spec.eps)
        options = {"lr": spec.lr, "alpha": spec.decay, "eps": self.epsilon(spec), "momentum": spec.momentum}
        self._flat_parameters = flatten_parameters(parameters)
        if self._flat_parameters is None:
            return torch.optim.RMSprop(parameters, **options)
        return FlatRMSProp(self._flat_parameters, **options)

    def adam(self, parameters: Any, *, lr: float, eps: float = 1e-8) -> torch.optim.Optimizer:
        """Returns fused Adam over `parameters` in one buffer where they can share one, plain Adam otherwise."""
        params = [p for p in parameters if p.requires_grad]
        if not params:
            return torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=lr, eps=eps)
        self._flat_parameters = flatten_parameters(params)
        if self._flat_parameters is None:
            return torch.optim.Adam(params, lr=lr, eps=eps)
        return FlatAdam(self._flat_parameters, lr=lr, eps=eps)

    def _make_target_network(self, names: tuple[str, ...]) -> None:
        online = self.model if names == WHOLE_MODEL else SomeNetworks(self.model, names)
        self.target_network = TargetNetwork(online, self.target_model)
        self.target_network.update()
        self.target_model = self.target_network.model
        self.target_models = {self.model: self.target_model}
        self.components["target_network"] = self.target_network

    def make_generator(self, *path: int | str) -> torch.Generator:
        """Returns a random stream of the policy's own, named by `path`, on its device."""
        return torch.Generator(self.device).manual_seed(self.stream_seed(*path))

    def live_weights(self) -> dict[str, NDArray[Any]] | None:
        """Returns the model's tensors as arrays that share their memory; None where they are not on the CPU."""
        if self.device.type != "cpu":
            return None
        return {name: tensor.detach().numpy() for name, tensor in self.model.state_dict().items()}

    # --- acting -----------------------------------------------------------------------------------------------

    def forward_in_framework(
        self, columns: Mapping[str, NDArray[Any]], explore: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, list[NDArray[Any]]]:
        """Returns what `forward_with_memory` does, by way of torch."""
        with torch.no_grad():
            inputs, _, states = self._dist_inputs(self._acting_batch(columns), explore, self.global_timestep)
            values = self.model.value_function().cpu().numpy() if self.wants_values else None
            return inputs.cpu().numpy(), values, [state.cpu().numpy() for state in states]

    def values_in_framework(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the model's state values [B] for `obs` [B, ...], by way of torch."""
        with torch.no_grad():
            self.model(self._acting_batch({OBS: obs}), [], None)
            return np.asarray(self.model.value_function().cpu().numpy())

    def _acting_batch(self, input_dict: Mapping[str, Any]) -> SampleBatch:
        """Returns columns as tensors, and puts the model into the mode for acting."""
        self._threads.use(len(input_dict[OBS]))
        columns = SampleBatch.from_columns(dict(input_dict))
        if self.is_recurrent():  # sequences of one step
            columns[SEQ_LENS] = np.ones(len(input_dict[OBS]), np.int32)
        batch = self._lazy_tensor_dict(columns)
        batch.set_training(False)
        if self.model.training:  # asking costs nothing; setting visits every layer
            self.model.eval()
        return batch

    def act_in_framework(
        self, input_dict: Mapping[str, Any], explore: bool, timestep: int | None
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns actions [B, ...] and extra columns, computed without autograd."""
        step = self.global_timestep if timestep is None else timestep
        count = len(np.asarray(input_dict[OBS]))
        with torch.no_grad():
            batch = self._acting_batch(input_dict)
            if self._action_sampler_fn is not None:
                made = self._action_sampler_fn(self, self.model, batch, states_of(batch), explore, step)
                actions, logp, inputs, states = sampled(made)
                return self._finish(count, actions, logp, inputs, {}, states)
            inputs, dist_class, states = self._dist_inputs(batch, explore, step)
            distribution = dist_class(inputs, self.model)
            twin = distribution if self.numpy_dist is None else method(self, "distribution")(inputs.cpu().numpy())
            actions, logp = self.exploration.get_exploration_action(
                action_distribution=twin, timestep=step, explore=explore
            )
            values = {VF_PREDS: self.model.value_function()} if self.wants_values else {}
            extra = {**values, **self.extra_action_out(batch, states_of(batch), self.model, distribution)}
        return self._finish(count, actions, logp, inputs, extra, states)

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor | list[Tensor]:
        """Returns the loss of one batch of tensors: a scalar, or a list with one per optimiser."""
        if self._loss is None:
            raise NotImplementedError(f"{type(self).__name__} has no loss: pass loss_fn, or override loss()")
        result: Tensor | list[Tensor] = self._loss(self, model, dist_class, train_batch)
        return result

    def _loss_of_zeros(self, samples: SampleBatch, stats_fn: Callable[[Any, Any], Any] | None) -> None:
        batch = self._lazy_tensor_dict(self._learned_columns(samples))
        batch.set_training(True)
        training = self.model.training
        self.model.eval()  # layers that follow their inputs' statistics must not follow zeros
        if self._has_own_loss():
            method(self, "loss")(self.model, self.dist_class, batch)
        if stats_fn is not None:
            stats_fn(self, batch)
        self.model.train(training)

    def _update(self, samples: SampleBatch) -> tuple[dict[str, Any], dict[str, Any]]:
        batch = self._batch_to_learn(samples)
        stats: dict[str, Any] = {"allreduce_latency": 0.0}
        with blas_in_one_thread():
            for stepping in self._backward(batch, samples, stats):
                for index in stepping:
                    self._optimizers[index].step()
        stats.update(self.extra_grad_info(batch))
        return stats, self.extra_compute_grad_fetches()

    def _batch_to_learn(self, samples: SampleBatch) -> SampleBatch:
        """Begins an update: returns the batch as tensors."""
        if not self.model.training:
            self.model.train()
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
        if self.without_autograd is not None and len(self.devices) == 1 and not self.distributed_world_size:
            made = self.without_autograd(batch)
            named = made if isinstance(made, Mapping) else dict.fromkeys(self.optimizer_specs, made)
            losses = {index: named[name] for index, name in enumerate(self.optimizer_specs) if name in named}
            for index, loss in losses.items():
                self.check_finite_loss(loss, index, samples)
                stats.update(self.extra_grad_process(self._optimizers[index], loss))
            yield losses
        elif len(self.devices) == 1:
            for losses in phases(self, method(self, "loss")(self.model, self.dist_class, batch), batch):
                self._fill_gradients({index: [(loss, 1.0)] for index, loss in losses.items()}, samples, stats)
                yield losses
        else:
            shares = self._make_replicas().losses(batch)
            self._fill_gradients(shares, samples, stats)
            yield shares

    def _fill_gradients(
        self, losses: Mapping[int, list[tuple[Tensor, float]]], samples: SampleBatch, stats: dict[str, Any]
    ) -> None:
        """Fills the gradients of some optimisers' parameters, of shares of their losses with weights."""
        several = len(self._optimizers) > 1 or bool(self.own_steps)
        for index, shares in losses.items():
            optimizer = self._optimizers[index]
            flat = self._flat_of(optimizer)
            if flat is None:
                optimizer.zero_grad()
            else:
                flat.zero_grad()
            # What is another optimiser's stays as it is: a loss may reach networks that it is not to change.
            own = self._parameters_of(optimizer) if several else None
            for loss, weight in shares:
                self.check_finite_loss(loss, index, samples)
                part = loss if weight == 1.0 else loss * weight
                part.backward(retain_graph=index < max(losses), inputs=own)
            if self.distributed_world_size:
                stats["allreduce_latency"] += self._average_gradients(optimizer)
            stats.update(self.extra_grad_process(optimizer, shares[0][0]))

    def check_finite_loss(self, loss: Tensor, index: int, samples: SampleBatch) -> None:
        """Raises an error that names what was first to be NaN or infinite, if the loss of an optimiser is.

        Raises:
            NonFiniteError: Names a weight, else a column of the batch, else the loss.
        """
        value = loss.item()
        if not math.isfinite(value):
            raise explain_nonfinite(index, value, self, samples)

    def _flat_of(self, optimizer: torch.optim.Optimizer) -> FlatParameters | None:
        """Returns the buffer that an optimiser's parameters lie in; None where they lie apart."""
        return optimizer.flat if isinstance(optimizer, FlatOptimizer) else self._flat_parameters

    def _parameters_of(self, optimizer: torch.optim.Optimizer) -> list[Any]:
        """Returns the model's parameters that an optimiser steps."""
        if isinstance(optimizer, FlatOptimizer):
            return optimizer.flat.members()
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def _average_gradients(self, optimizer: torch.optim.Optimizer) -> float:
        """Replaces the gradients by their mean over the learners of the group; returns the seconds it took."""
        started = time.perf_counter()
        flat = self._flat_of(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        whole = flat is not None and (isinstance(optimizer, FlatOptimizer) or len(self._optimizers) == 1)
        distributed.average_gradients(parameters, flat.grad if whole and flat is not None else None)
        return time.perf_counter() - started

    def agreed_minimum(self, number: int) -> int:
        """Returns the smallest of the numbers that this policy's siblings in other processes call this with."""
        return distributed.smallest(number) if self.distributed_world_size else number

    def _losses(self, batch: SampleBatch) -> dict[int, Tensor]:
        """Returns the losses of a batch of tensors by the index of their optimiser."""
        return by_optimizer(self, method(self, "loss")(self.model, self.dist_class, batch), batch)

    def _make_replicas(self) -> DataParallel:
        if self._replicas is None:
            self._replicas = DataParallel(self, self.devices)
            self.model_gpu_towers = [modules["online"] for modules in self._replicas.modules]
        return self._replicas

    def compute_gradients(self, postprocessed_batch: SampleBatch) -> tuple[list[Any], dict[str, Any]]:
        """Returns the gradients of one batch as arrays, one per parameter (None where unused), and the info."""
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

    def second_order(self, name: str) -> TorchSecondOrder:
        """Returns the loss of networks that the policy steps itself, and its `divergence`, with their derivatives."""
        return TorchSecondOrder(self, name)

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
        tensors = {key: _tensors(value, target) for key, value in batch.items()}
        made = SampleBatch.from_columns(tensors)
        if SEQ_LENS in batch:
            made.max_seq_len = getattr(batch, "max_seq_len", None)
        return made

    # --- weights and state ------------------------------------------------------------------------------------

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

    def weights_norm(self) -> Tensor:
        """Returns the global L2 norm of the weights, a scalar."""
        weights = list(self.model.parameters()) if self._flat_parameters is None else [self._flat_parameters.param]
        norm: Tensor = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(w.detach()) for w in weights]))
        return norm

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
        for optimizer, saved in zip(self._optimizers, state.get("_optimizer_variables", []), strict=False):
            load_optimizer(self.model, optimizer, saved)
        generators = self._generators()
        for name, saved in state.get("_torch_rng", {}).items():
            generators[name].set_state(torch.from_numpy(np.asarray(saved, np.uint8).copy()))
        self.on_global_var_update({"timestep": self.global_timestep})

    def _generators(self) -> dict[str, torch.Generator]:
        """Returns the torch generators that modules of the policy own, by module name."""
        named = [
            pair for prefix, model in self._modules_by_role().items() for pair in model.named_modules(prefix=prefix)
        ]
        found = {name: getattr(module, "generator", None) for name, module in named}
        return {name: made for name, made in found.items() if isinstance(made, torch.Generator)}

    def export_model(self, export_dir: str, onnx: int | None = None) -> None:
        """Writes the model as TorchScript (`model.pt`, one input: preprocessed obs [B, ...]) or as ONNX."""
        from rlframe.policy.torch.export import export_torch_model

        export_torch_model(self, export_dir, onnx)


def clip_each(parameters: Sequence[Any], limit: float) -> Tensor:
    """Scales each parameter's gradient, where it has one, to an L2 norm of at most `limit`.

    Returns:
        The global norm before, a scalar.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([gradient.norm() for gradient in gradients])
    for gradient, norm in zip(gradients, norms, strict=True):
        gradient.mul_((limit / norm).clamp(max=1.0))
    whole: Tensor = norms.norm()
    return whole


class _SeededTorch:
    """A context in which torch's global stream is a given one; the old one goes on afterwards."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        self._saved = torch.get_rng_state()
        torch.manual_seed(self.seed)

    def __exit__(self, *exc: object) -> None:
        torch.set_rng_state(self._saved)


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
