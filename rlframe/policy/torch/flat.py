"""All parameters of a model in one buffer, and of its target: one optimiser step, one norm, not one per tensor."""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from rlframe.policy.parts import Component
from rlframe.policy.torch.arrays import load_weights, to_arrays

#: Who has a parameter in its buffer, by the parameter's identity, which nothing else has while the buffer holds it. No
#: note on the parameter: models are pickled with these.
_OWNERS: weakref.WeakValueDictionary[int, FlatParameters] = weakref.WeakValueDictionary()

#: A denormal number: what a thread that flushes them takes for 0.
_DENORMAL = 5e-324


class FlatParameters:
    """Moves parameters into one contiguous tensor; they become views of it, and their gradients views of another.

    The parameters stay what they were for everybody else: same objects, same names, same values.

    Attributes:
        param: The buffer as one `nn.Parameter` [P] for an optimiser.
        grad: Its gradient [P], filled in place by `backward()`.

    Raises:
        ValueError: If there are no parameters, or they differ in dtype or device.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        params = list(parameters)
        if not params:
            raise ValueError("a model without trainable parameters has nothing to optimise")
        if len({(p.dtype, p.device) for p in params}) > 1:
            raise ValueError("parameters of several dtypes or devices cannot share one buffer")
        params.sort(key=lambda p: p.shape[-1:] != (2,))  # pairs at even places, for programs that read complex numbers
        sizes = [p.numel() for p in params]
        buffer = torch.empty(sum(sizes), dtype=params[0].dtype, device=params[0].device)
        self.grad = torch.zeros_like(buffer)
        for p, values, grad in zip(params, buffer.split(sizes), self.grad.split(sizes), strict=True):
            values.copy_(p.data.reshape(-1))
            p.data, p.grad = values.view(p.shape), grad.view(p.shape)
            _OWNERS[id(p)] = self
        self._grads: list[Any] = [p.grad for p in params]
        self.param = nn.Parameter(buffer)
        self.param.grad = self.grad
        self._members = params
        self._places = [(p, p.data_ptr(), p.data) for p in params]

    def take_back(self) -> None:
        """Takes in values that a program has put in the place of a member's: `parameter.data = ...`."""
        for parameter, place, own in self._places:
            if parameter.data_ptr() != place:
                if parameter.shape != own.shape:
                    raise ValueError(f"parameter.data: got {tuple(parameter.shape)}, wanted {tuple(own.shape)}")
                own.copy_(parameter.data)
                parameter.data = own

    def take_gradients(self) -> None:
        """Takes in gradients that others put in the place of a member's, of which None counts as zeros."""
        self.param.grad = self.grad
        for p, own in zip(self._members, self._grads, strict=True):
            if p.grad is not own:
                own.zero_() if p.grad is None else own.copy_(p.grad)
                p.grad = own

    def zero_grad(self) -> None:
        """Clears all gradients in place, also those that another policy which shares a layer has replaced."""
        self.take_gradients()
        self.grad.zero_()

    def members(self) -> list[nn.Parameter]:
        """Returns the parameters in the order in which the buffer holds them."""
        return list(self._members)

    def frozen(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Returns the parameters that a program has frozen since (`requires_grad`), each with a copy of its values."""
        self.take_back()
        self.take_gradients()
        return [(p, p.detach().clone()) for p in self._members if not p.requires_grad]

    @staticmethod
    def put_back(frozen: Iterable[tuple[nn.Parameter, Tensor]]) -> None:
        """Gives parameters the values that `frozen` returned."""
        for parameter, values in frozen:
            parameter.data.copy_(values)

    def norm(self) -> Tensor:
        """Returns the global L2 norm of the gradient, a scalar tensor."""
        norm: Tensor = torch.linalg.vector_norm(self.grad)
        return norm


def take_all_back(flats: Iterable[FlatParameters]) -> None:
    """Does what `take_back` does for several buffers."""
    for flat in flats:
        flat.take_back()


def any_frozen(optimizers: Iterable[torch.optim.Optimizer]) -> bool:
    """Takes back what programs set (`take_back`); returns whether one of these steps what is frozen."""
    for optimizer in optimizers:
        if (flat := getattr(optimizer, "flat", None)) is not None:
            flat.take_back()
            flat.take_gradients()  # before others are written
        parameters = flat._members if flat is not None else [p for g in optimizer.param_groups for p in g["params"]]
        if any(not parameter.requires_grad for parameter in parameters):
            return True
    return False


class FlatAdam(torch.optim.Adam):
    """Adam's fused form on one parameter, without what `torch.optim` does around it at each step.

    On networks of this size that is more than half of a step's time: a label for the profiler, hooks, switching
    gradients off. State and results are those of `Adam(fused=True)`; steps with hooks, and with options that this
    short path does not know, go the long way.

    Args:
        flat: The parameters in one buffer.
        lr: Learning rate.
        eps: ε.
    """

    # Without its decorator, which imports `torch._dynamo` to switch it off: 850 modules, a second of each start.
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)

    def __init__(self, flat: FlatParameters, lr: float, eps: float = 1e-8) -> None:
        self.flat = flat
        super().__init__([flat.param], lr=lr, eps=eps, fused=True)

    def _patch_step_function(self) -> None:
        """Leaves `step` as it is; `Optimizer` would wrap it in what this class does without."""
        self._zero_grad_profile_name = "Optimizer.zero_grad#FlatAdam.zero_grad"

    def _has_hooks(self) -> bool:
        before, behind = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
        return bool(before or behind or _global_optimizer_pre_hooks or _global_optimizer_post_hooks)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all that lie in the buffer, in place."""
        self.flat.zero_grad()

    def step(self, closure: Any = None) -> Any:
        """Does one step on the gradient of the only parameter; what is frozen in it stays."""
        frozen = self.flat.frozen()
        result = self._step(closure)
        self.flat.put_back(frozen)
        return result

    def _step(self, closure: Any) -> Any:
        group = self.param_groups[0]
        param = group["params"][0]
        unknown = closure is not None or len(self.param_groups) > 1 or group["amsgrad"] or param.grad is None
        if unknown or self._has_hooks():
            long: Any = torch.optim.Adam.step  # wrapped only once there has been an Adam
            return (long if hasattr(long, "hooked") else self.profile_hook_step(long))(self, closure)
        state = self.state[param]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=param.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(param.data), torch.zeros_like(param.data)
        beta1, beta2 = group["betas"]
        state["step"] += 1
        torch._fused_adam_(
            [param.data],
            [param.grad],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=group["maximize"],
        )
        return None


def step_flushing_denormals(optimizer: torch.optim.Optimizer) -> None:
    """Does an optimiser's step, in which denormal numbers count as zeros.

    Moments of weights whose gradients stay 0, as those of a ReLU unit that is off, halve until they are denormal, with
    which a processor computes a hundred times as long: Adam's step took six times its time after some thousand
    updates. What such moments move weights by is less than a float can say. The flag is this thread's; where the
    program has set it already, it stays set.
    """
    flushed = _DENORMAL * 1.0 == 0.0
    torch.set_flush_denormal(True)
    try:
        optimizer.step()
    finally:
        torch.set_flush_denormal(flushed)


def flatten_parameters(parameters: Iterable[nn.Parameter]) -> FlatParameters | None:
    """Returns the parameters in one buffer, or None where they cannot share one.

    They cannot with mixed dtypes, where there are none, and where some lie in another's buffer: layers that two
    policies share stay where the first one has them, and the second steps each parameter by itself.
    """
    params = [p for p in parameters if p.requires_grad]
    if not params or len({(p.dtype, p.device) for p in params}) > 1 or not params[0].dtype.is_floating_point:
        return None
    if any(id(p) in _OWNERS for p in params):
        return None
    return FlatParameters(params)


class TargetNetwork(Component):
    """Holds a frozen copy of a model; `update(tau)` moves it towards the online model.

    Args:
        online: The model that learns. Its parameters may be flattened later; the copy does not care.
        model: A second model of the same make, to be the copy; None makes one. Parameters that the online model got
            since, such as a multiplier that the loss learns, have no copy.
    """

    def __init__(self, online: nn.Module, model: nn.Module | None = None) -> None:
        self.online = online
        self._own_make = model is not None
        self.model: Any = copy.deepcopy(online) if model is None else model.to(next(online.parameters()).device)
        # The copy is one buffer too, so that a full update is one copy when the online side is one as well.
        self._flat = flatten_parameters(self.model.parameters())
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        self.model.eval()

    def _sources(self) -> list[Tensor]:
        if not self._own_make:
            return list(self.online.parameters())
        online = dict(self.online.named_parameters())
        return [online[name] for name, _ in self.model.named_parameters()]

    def update(self, tau: float = 1.0) -> None:
        """Sets target := tau · online + (1 − tau) · target, buffers included (those are copied)."""
        with torch.no_grad():
            targets: list[Tensor] = list(self.model.parameters())
            sources = self._sources()
            if targets and tau == 1.0:
                torch._foreach_copy_(targets, sources)
            elif targets:
                torch._foreach_lerp_(targets, sources, tau)
            for buffer, online in zip(self.model.buffers(), self.online.buffers(), strict=True):
                buffer.copy_(online)

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the target's parameters and buffers, `{name: array}`."""
        return to_arrays(self.model.state_dict())

    def set_weights(self, weights: Mapping[str, Any], *, owner: str = "the target network") -> None:
        """Copies `{name: array}` into the target; a ValueError names `owner` where they do not fit."""
        load_weights(self.model, weights, owner=owner)

    def get_state(self) -> dict[str, Any]:
        """Returns the weights, as a policy's component does."""
        return {"weights": self.get_weights()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self.set_weights(state["weights"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the frozen copy."""
        return cast(Any, self.model)(*args, **kwargs)
