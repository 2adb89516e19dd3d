"""The PyTorch policy: acting through NumPy or torch, and one learner step around a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlframe.data.columns import ACTION_DIST_INPUTS, ACTION_LOGP, ACTION_PROB, OBS, SEQ_LENS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.actor import ChainActor
from rlframe.models.catalog import ModelCatalog
from rlframe.models.distributions import numpy_dist_for
from rlframe.models.torch.check_model import check_model
from rlframe.policy.numpy_policy import ActingRecipe
from rlframe.policy.policy import Policy, State
from rlframe.policy.torch.arrays import load_weights, optimizer_to_state, state_to_optimizer, to_arrays
from rlframe.policy.torch.flat import FlatAdam, FlatParameters, flatten_parameters
from rlframe.policy.torch.guards import check_finite_loss, choose_device
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY
from rlframe.utils.schedules import ConstantSchedule, PiecewiseSchedule
from rlframe.utils.seeding import derive_seed

Loss = Callable[..., Any]


class TorchPolicy(Policy):
    """Acts and learns with a PyTorch model.

    Derive with `build_policy_class`, or subclass and override `loss`, `optimizer`, `extra_grad_process`,
    `extra_grad_info`, `extra_action_out`, `postprocess_trajectory`.

    Where model, exploration and distribution are built in, acting runs in NumPy on views of the live weights; any
    custom part makes it run through torch without autograd. Both give the same numbers (within 1e-6).

    Args:
        observation_space: Preprocessed observation space.
        action_space: The environment's action space.
        config: The trainer's config.
        model: A `TorchModelV2`; None builds the one that `config["model"]` describes.
        loss: `fn(policy, model, dist_class, train_batch) -> scalar tensor, or a list with one per optimiser`.
        action_distribution_class: A torch distribution class; None takes the action space's own.
        action_sampler_fn: Replaces model, distribution and exploration in acting.
        action_distribution_fn: Replaces the model's forward pass in acting.
        max_seq_len: Longest sequence of a recurrent training batch.
        get_batch_divisibility_req: Number (or function of the policy) that batch sizes must be a multiple of.
    """

    framework = "torch"
    #: Columns that the loss reads; None makes all of them tensors.
    learn_columns: tuple[str, ...] | None = None
    _action_sampler_fn: Callable[..., Any] | None = None
    _action_distribution_fn: Callable[..., Any] | None = None

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
        max_seq_len: int = 20,
        get_batch_divisibility_req: int | Callable[[Any], int] | None = None,
    ) -> None:
        super().__init__(observation_space, action_space, config)
        self.device = choose_device(config)
        self.devices = [self.device]
        self.max_seq_len = max_seq_len
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
        self.dist_class = action_distribution_class
        self.numpy_dist: Any = self._numpy_distribution()
        self.view_requirements.update(getattr(self.model, "view_requirements", {}))
        req = get_batch_divisibility_req
        self.batch_divisibility_req = req(self) if callable(req) else (req or 1)
        self.exploration = self._create_exploration()
        self.flat: FlatParameters | None = None
        self._optimizers: list[torch.optim.Optimizer] = self._make_optimizers()
        self.actor: Any = self._make_actor()
        self.callbacks: Any = None
        self.learn_hook: Callable[..., None] | None = None
        self._loaded: dict[int, SampleBatch] = {}

    # --- building ---------------------------------------------------------------------------------------------

    @classmethod
    def with_updates(cls, name: str | None = None, **hooks: Any) -> type[TorchPolicy]:
        """Returns a policy class with some hooks replaced; they are those of `build_policy_class`."""
        from rlframe.policy.torch.template import derive_class

        return derive_class(cls, name, hooks)

    def stream_seed(self, *path: int | str) -> int:
        """Returns the seed of this policy's random stream named by `path`."""
        return derive_seed(self.seed, "torch", *path)

    def seeded(self, *path: int | str) -> Any:
        """Returns a context in which torch draws from this policy's own stream named by `path`."""
        return _SeededTorch(self.stream_seed(*path))

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the model and the torch distribution class that the config describes."""
        model_config = self.config["model"]
        dist_class, num_outputs = ModelCatalog.get_action_dist(
            self.action_space, model_config, dist_type=model_config.get("custom_action_dist"), framework="torch"
        )
        model = ModelCatalog.get_model_v2(
            obs_space=self.observation_space,
            action_space=self.action_space,
            num_outputs=num_outputs,
            model_config=model_config,
            framework="torch",
        )
        check_model(model, self.observation_space, num_outputs)
        return model, dist_class

    def _numpy_distribution(self) -> Any:
        """Returns the NumPy twin of the distribution class, None for a custom class."""
        default, _ = ModelCatalog.get_action_dist(self.action_space, self.config["model"], framework="torch")
        same = self.dist_class is None or getattr(self.dist_class, "func", self.dist_class) is getattr(
            default, "func", default
        )
        return numpy_dist_for(self.action_space)[0] if same else None

    def _make_optimizers(self) -> list[torch.optim.Optimizer]:
        if self.config.get("in_evaluation"):
            return []
        made = self.optimizer()
        optimizers = list(made) if isinstance(made, (list, tuple)) else [made]
        replaced = self.exploration.get_exploration_optimizer(optimizers)
        return optimizers if replaced is None else list(replaced)

    def optimizer(self) -> torch.optim.Optimizer | list[torch.optim.Optimizer]:
        """Returns the optimiser(s); by default Adam with `config["lr"]` on all parameters in one buffer."""
        return self.adam(self.model.parameters(), lr=self.config["lr"])

    def adam(self, parameters: Any, *, lr: float, eps: float = 1e-8) -> torch.optim.Optimizer:
        """Returns fused Adam over `parameters` in one buffer where they can share one, plain Adam otherwise."""
        params = [p for p in parameters if p.requires_grad]
        if not params:
            return torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=lr, eps=eps)
        self.flat = flatten_parameters(params)
        if self.flat is None:
            return torch.optim.Adam(params, lr=lr, eps=eps)
        return FlatAdam([self.flat.param], lr=lr, eps=eps)

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns the description that a NumPy actor is built from, None where the model cannot be one."""
        describe = getattr(self.model, "actor_spec", None)
        return None if describe is None else describe()

    def live_weights(self) -> dict[str, NDArray[Any]]:
        """Returns the model's tensors as arrays that share their memory (CPU only); for actors, not for users."""
        return {name: tensor.detach().numpy() for name, tensor in self.model.state_dict().items()}

    def acts_in_numpy(self) -> bool:
        """Returns whether acting needs nothing but weights: built-in model, distribution and hooks."""
        custom = self._action_sampler_fn or self._action_distribution_fn or self.has_custom_action_out()
        return self.numpy_dist is not None and not custom and self.actor_spec() is not None

    def has_custom_action_out(self) -> bool:
        """Returns whether `extra_action_out` is user code that needs torch tensors."""
        method = type(self).extra_action_out
        return method is not TorchPolicy.extra_action_out and not getattr(method, "only_values", False)

    def _make_actor(self) -> Any:
        if self.device.type != "cpu" or not self.acts_in_numpy():
            return None
        return self.build_actor(self.actor_spec(), self.live_weights(), self.rng if self.noisy else None)

    #: `fn(spec, weights, rng) -> actor`; importable without torch, since remote workers call it.
    build_actor: Callable[[Any, Mapping[str, NDArray[Any]], Any], Any] = staticmethod(ChainActor)
    #: Whether the network has noise of its own while exploring.
    noisy = False

    def acting_recipe(self) -> ActingRecipe | None:
        """Returns what a remote worker needs to act without torch, None where it needs torch."""
        method = type(self).postprocess_trajectory
        free = method is Policy.postprocess_trajectory or getattr(method, "framework_free", False)
        if not (free and self.acts_in_numpy()):
            return None
        return ActingRecipe(
            build_actor=type(self).build_actor,
            spec=self.actor_spec(),
            wants_values=self.wants_values,
            noisy=self.noisy,
            train_columns=self.train_columns,
            postprocess=getattr(method, "framework_free", None),
        )

    # --- acting -----------------------------------------------------------------------------------------------

    def forward(
        self, obs: NDArray[Any], explore: bool = True
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Returns distribution inputs [B, K] and values [B] (None unless wanted) for `obs` [B, ...]."""
        if self.actor is not None:
            actor = self.actor if explore else self.actor.mean
            return actor.forward_with_values(obs) if self.wants_values else (actor.forward(obs), None)
        with torch.no_grad():
            outputs, _ = self._run_model({OBS: obs})
            values = self.model.value_function().cpu().numpy() if self.wants_values else None
            return outputs.cpu().numpy(), values

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the model's state values [B] for `obs` [B, ...]."""
        if self.actor is not None:
            return np.asarray(self.actor.values(obs))
        with torch.no_grad():
            self._run_model({OBS: obs})
            return np.asarray(self.model.value_function().cpu().numpy())

    def act(
        self, obs: NDArray[Any], explore: bool = True, timestep: int | None = None
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Returns actions [B, ...] and extra columns for preprocessed observations [B, ...]."""
        plain = self._action_sampler_fn is None and self._action_distribution_fn is None
        if plain and self.numpy_dist is not None and not self.has_custom_action_out():
            return super().act(obs, explore, timestep)
        return self._act_in_torch({OBS: obs}, explore, timestep)

    def compute_actions_from_input_dict(
        self,
        input_dict: Mapping[str, Any],
        explore: bool | None = None,
        timestep: int | None = None,
        episodes: Any = None,
        **kwargs: Any,
    ) -> tuple[NDArray[Any], list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """Returns actions [B, ...], states and extra columns for a dict of columns."""
        if self.acts_in_numpy() and self.actor is not None:
            return super().compute_actions_from_input_dict(input_dict, explore, timestep, episodes, **kwargs)
        explore = bool(self.config.get("explore", True)) if explore is None else explore
        self.exploration.before_compute_actions(timestep=timestep, explore=explore)
        actions, columns = self._act_in_torch(input_dict, explore, timestep)
        self.exploration.restore_weights()
        return actions, [], columns

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """Returns distribution inputs [B, K] for a tensor of preprocessed observations [B, ...]."""
        outputs: Tensor = self.model({OBS: obs, "is_training": False}, [], None)[0]
        return outputs

    def _run_model(self, input_dict: Mapping[str, Any]) -> tuple[Tensor, list[Tensor]]:
        batch = self._lazy_tensor_dict(SampleBatch(dict(input_dict)))
        batch.set_training(False)
        self.model.eval()
        outputs: tuple[Tensor, list[Tensor]] = self.model(batch, [], None)
        return outputs

    def _act_in_torch(
        self, input_dict: Mapping[str, Any], explore: bool, timestep: int | None
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        step = self.global_timestep if timestep is None else timestep
        count = len(np.asarray(input_dict[OBS]))
        with torch.no_grad():
            batch = self._lazy_tensor_dict(SampleBatch(dict(input_dict)))
            batch.set_training(False)
            self.model.eval()
            if self._action_sampler_fn is not None:
                actions, logp, *_ = self._action_sampler_fn(self, self.model, batch, [], explore, step)
                return self._finish(count, actions, logp, None, {})
            inputs, dist_class = self._dist_inputs(batch, explore, step)
            distribution = dist_class(inputs, self.model)
            twin = distribution if self.numpy_dist is None else self.distribution(inputs.cpu().numpy())
            actions, logp = self.exploration.get_exploration_action(
                action_distribution=twin, timestep=step, explore=explore
            )
            extra = self.extra_action_out(batch, [], self.model, distribution)
        return self._finish(count, actions, logp, inputs, extra)

    def _dist_inputs(self, batch: SampleBatch, explore: bool, step: int) -> tuple[Tensor, Any]:
        if self._action_distribution_fn is None:
            return self.model(batch, [], None)[0], self.dist_class
        inputs, dist_class, _ = self._action_distribution_fn(
            self,
            self.model,
            input_dict=batch,
            state_batches=[],
            seq_lens=None,
            explore=explore,
            timestep=step,
            is_training=False,
        )
        return inputs, dist_class

    def _finish(
        self, count: int, actions: Any, logp: Any, inputs: Tensor | None, extra: Mapping[str, Any]
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        columns = {key: _numpy(value) for key, value in extra.items()}
        if inputs is not None:
            columns[ACTION_DIST_INPUTS] = _numpy(inputs)
        if logp is not None:
            columns[ACTION_LOGP] = np.asarray(_numpy(logp), np.float32)
            columns[ACTION_PROB] = np.exp(columns[ACTION_LOGP])
        self.global_timestep += count
        return _numpy(actions), columns

    def extra_action_out(
        self, input_dict: SampleBatch, state_batches: list[Tensor], model: Any, action_dist: Any
    ) -> dict[str, Any]:
        """Returns further columns [B, ...] to store with the actions."""
        return {}

    # --- learning ---------------------------------------------------------------------------------------------

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor | list[Tensor]:
        """Returns the loss of one batch of tensors: a scalar, or a list with one per optimiser."""
        if self._loss is None:
            raise NotImplementedError(f"{type(self).__name__} has no loss: pass loss_fn, or override loss()")
        result: Tensor | list[Tensor] = self._loss(self, model, dist_class, train_batch)
        return result

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        """Does one learner step and returns `{"learner_stats": ..., "model": ..., "custom_metrics": ...}`.

        Raises:
            NonFiniteError: If the loss is NaN or infinite; the message names what was first to be so.
        """
        if not self.model.training:
            self.model.train()
        custom: dict[str, Any] = {}
        if self.learn_hook is not None:
            self.learn_hook(policy=self, train_batch=samples, result=custom)
        batch = self._lazy_tensor_dict(self._learned_columns(samples))
        batch.set_training(True)
        stats = self._backward(batch, samples)
        for optimizer in self._optimizers:
            optimizer.step()
        stats.update(self.extra_grad_info(batch))
        return self._learn_result(stats, custom)

    def _learn_result(self, stats: dict[str, Any], custom: dict[str, Any]) -> dict[str, Any]:
        numbers = {key: _scalar(value) for key, value in stats.items()}
        result: dict[str, Any] = {LEARNER_STATS_KEY: numbers, "model": self.model.metrics(), "custom_metrics": custom}
        for key, value in self.extra_compute_grad_fetches().items():
            if key == LEARNER_STATS_KEY:
                numbers.update({name: _scalar(item) for name, item in value.items()})
            else:
                result[key] = _numpy(value)
        return result

    def _backward(self, batch: SampleBatch, samples: SampleBatch) -> dict[str, Any]:
        """Fills the gradients for one batch and returns the statistics of `extra_grad_process`."""
        losses = self.loss(self.model, self.dist_class, batch)
        losses = list(losses) if isinstance(losses, (list, tuple)) else [losses]
        changed = self.model.custom_loss(losses if len(losses) > 1 else losses[0], batch)
        losses = list(changed) if isinstance(changed, (list, tuple)) else [changed]
        if len(losses) != len(self._optimizers):
            raise ValueError(f"got {len(losses)} losses for {len(self._optimizers)} optimisers; wanted one for each")
        if self.flat is not None:
            self.flat.zero_grad()
        stats: dict[str, Any] = {"allreduce_latency": 0.0}
        for index, (loss, optimizer) in enumerate(zip(losses, self._optimizers, strict=True)):
            check_finite_loss(loss, index, self, samples)
            if self.flat is None:
                optimizer.zero_grad()
            loss.backward(retain_graph=index < len(losses) - 1)
            stats.update(self.extra_grad_process(optimizer, loss))
        return stats

    def _learned_columns(self, samples: SampleBatch) -> SampleBatch:
        """Returns the columns that the loss reads: `learn_columns`, or all."""
        wanted = self.learn_columns
        if wanted is None:
            return samples
        return SampleBatch.from_columns({key: samples[key] for key in wanted if key in samples})

    def compute_gradients(self, postprocessed_batch: SampleBatch) -> tuple[list[Any], dict[str, Any]]:
        """Returns the gradients of one batch as arrays, one per parameter (None where unused), and the info."""
        self.model.train()
        batch = self._lazy_tensor_dict(postprocessed_batch)
        batch.set_training(True)
        stats = self._backward(batch, postprocessed_batch)
        stats.update(self.extra_grad_info(batch))
        grads = [None if p.grad is None else p.grad.detach().cpu().numpy().copy() for p in self.model.parameters()]
        return grads, self._learn_result(stats, {})

    def apply_gradients(self, gradients: Sequence[Any]) -> None:
        """Applies gradients as `compute_gradients` returns them."""
        for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
            if gradient is None:
                continue
            tensor = torch.as_tensor(gradient, device=self.device)
            if parameter.grad is None:
                parameter.grad = tensor.clone()
            else:
                parameter.grad.copy_(tensor)
        for optimizer in self._optimizers:
            optimizer.step()

    def load_batch_into_buffer(self, batch: SampleBatch, buffer_index: int = 0) -> int:
        """Keeps a batch for `learn_on_loaded_batch`; returns its rows."""
        self._loaded[buffer_index] = batch
        return len(batch)

    def get_num_samples_loaded_into_buffer(self, buffer_index: int = 0) -> int:
        """Returns the rows that `load_batch_into_buffer` keeps."""
        return len(self._loaded[buffer_index])

    def learn_on_loaded_batch(self, offset: int = 0, buffer_index: int = 0) -> dict[str, Any]:
        """Learns on `config["sgd_minibatch_size"]` rows of the kept batch from `offset` on (all, if not set)."""
        batch = self._loaded[buffer_index]
        size = int(self.config.get("sgd_minibatch_size") or 0) or len(batch)
        return self.learn_on_batch(batch if size >= len(batch) else batch[offset : offset + size])

    def clip_gradients(self, optimizer: torch.optim.Optimizer, grad_clip: float | None) -> dict[str, Any]:
        """Scales the gradients so that their global L2 norm is at most `grad_clip`; None leaves them.

        Returns:
            `{"grad_gnorm": norm before clipping}`, `{}` for None.
        """
        if not grad_clip:
            return {}
        if self.flat is not None:
            norm = float(self.flat.norm())
            if norm > grad_clip:
                self.flat.grad.mul_(grad_clip / norm)
            return {"grad_gnorm": norm}
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        return {"grad_gnorm": nn.utils.clip_grad_norm_(parameters, grad_clip)}

    def extra_grad_process(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> dict[str, Any]:
        """Called after `backward`, before the step; clip gradients here. Returns statistics."""
        return {}

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns learner statistics of the batch, called after the step."""
        return {}

    def extra_compute_grad_fetches(self) -> dict[str, Any]:
        """Returns further learner output, e.g. `{"td_error": array}`; `learner_stats` in it is merged."""
        return {}

    def get_tower_stats(self, stats_name: str) -> list[Any]:
        """Returns what the loss kept in `model.tower_stats[stats_name]`, one entry per device."""
        towers = [tower.tower_stats[stats_name] for tower in self.model_gpu_towers if stats_name in tower.tower_stats]
        if not towers:
            raise KeyError(f"the loss kept no {stats_name!r} in model.tower_stats")
        return towers

    def _lazy_tensor_dict(self, batch: SampleBatch, device: torch.device | None = None) -> SampleBatch:
        """Returns the batch with its numeric columns as tensors on the device (no copy on CPU).

        float64 becomes float32; integers keep their type; object columns such as `infos` stay as they are.
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
        return to_arrays(self.model.state_dict())

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Copies `{name: array}` into the model.

        Raises:
            ValueError: If names or shapes do not fit; nothing is changed then.
        """
        load_weights(self.model, weights, owner=type(self).__name__)

    def get_state(self) -> State:
        """Returns weights, optimiser, exploration, schedules' clock and random streams, by the state convention."""
        state = super().get_state()
        state["_optimizer_variables"] = [optimizer_to_state(optimizer) for optimizer in self._optimizers]
        state["_torch_rng"] = {
            name: generator.get_state().numpy().copy() for name, generator in self._generators().items()
        }
        return state

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned."""
        super().set_state(state)
        for optimizer, saved in zip(self._optimizers, state.get("_optimizer_variables", []), strict=False):
            state_to_optimizer(optimizer, saved)
        generators = self._generators()
        for name, saved in state.get("_torch_rng", {}).items():
            generators[name].set_state(torch.from_numpy(np.asarray(saved, np.uint8).copy()))
        self.on_global_var_update({"timestep": self.global_timestep})

    def _modules_by_role(self) -> dict[str, nn.Module]:
        """Returns the policy's networks, e.g. `{"online": ..., "target": ...}`."""
        return {"online": self.model}

    def _generators(self) -> dict[str, torch.Generator]:
        """Returns the torch generators that modules of the policy own, by module name."""
        named = [
            pair for prefix, model in self._modules_by_role().items() for pair in model.named_modules(prefix=prefix)
        ]
        found = {name: getattr(module, "generator", None) for name, module in named}
        return {name: made for name, made in found.items() if isinstance(made, torch.Generator)}

    def get_session(self) -> None:
        """Returns None: there are no TensorFlow sessions."""

    def export_model(self, export_dir: str, onnx: int | None = None) -> None:
        """Writes the model as TorchScript (`model.pt`, one input: preprocessed obs [B, ...]) or as ONNX."""
        from rlframe.policy.torch.export import export_torch_model

        export_torch_model(self, export_dir, onnx)

    def is_recurrent(self) -> bool:
        """Returns whether the model carries state."""
        return bool(self.model.get_initial_state())


class LearningRateSchedule:
    """Makes a torch policy's learning rate follow `lr_schedule`, a list of `[env step, value]`, linearly.

    Call the constructor in `before_loss_init` (or after the policy exists); with None the rate is constant.
    """

    _optimizers: list[torch.optim.Optimizer]

    def __init__(self, lr: float, lr_schedule: Sequence[Sequence[float]] | None) -> None:
        self.cur_lr = lr
        self.lr_schedule = _schedule(lr, lr_schedule)

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Sets every optimiser's rate to the schedule's value at `global_vars["timestep"]`."""
        super().on_global_var_update(global_vars)  # type: ignore[misc]  # the policy behind the mixin
        self.cur_lr = float(self.lr_schedule.value(global_vars["timestep"]))
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.cur_lr


class EntropyCoeffSchedule:
    """Makes `entropy_coeff` follow a schedule: a list of `[env step, value]`, or a step at which it reaches 0."""

    def __init__(self, entropy_coeff: float, entropy_coeff_schedule: Any) -> None:
        if isinstance(entropy_coeff_schedule, (int, float)) and entropy_coeff_schedule:
            entropy_coeff_schedule = [[0, entropy_coeff], [entropy_coeff_schedule, 0.0]]
        self.entropy_coeff = float(entropy_coeff)
        self.entropy_coeff_schedule = _schedule(entropy_coeff, entropy_coeff_schedule)

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Sets `entropy_coeff` to the schedule's value at `global_vars["timestep"]`."""
        super().on_global_var_update(global_vars)  # type: ignore[misc]  # the policy behind the mixin
        self.entropy_coeff = float(self.entropy_coeff_schedule.value(global_vars["timestep"]))


def _schedule(constant: float, points: Sequence[Sequence[float]] | None) -> Any:
    if not points:
        return ConstantSchedule(constant)
    pairs = [(int(step), float(value)) for step, value in points]
    return PiecewiseSchedule(pairs, outside_value=pairs[-1][1])


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
        if value.dtype == object:
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
    return torch.as_tensor(np.asarray(value), device=device)


def _numpy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, (tuple, list)):
        return type(value)(_numpy(part) for part in value)
    if isinstance(value, Mapping):
        return {key: _numpy(part) for key, part in value.items()}
    return value


def _scalar(value: Any) -> Any:
    """Returns a number for a tensor of one element, arrays for others."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else _numpy(value)
    if isinstance(value, float) and math.isnan(value):
        return value
    return value
