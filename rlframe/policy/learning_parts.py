"""What a policy that learns consists of, which algorithms say; and how model and weights are made of it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from rlframe.data.columns import VALID_MASK
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import padded_sequences
from rlframe.models.catalog import ModelCatalog
from rlframe.models.spec import ActingView, Part
from rlframe.policy.acting_parts import make_networks
from rlframe.policy.first_run import initialize_loss
from rlframe.policy.model_parts import split_model
from rlframe.policy.parts import (
    MODEL_OUTPUTS,
    MODEL_VALUES,
    WHOLE_MODEL,
    Component,
    FusedGradients,
    LossOutput,
    OptimizerSpec,
    SecondOrder,
    check_optimizers,
    kept,
)
from rlframe.policy.policy import schedule_of
from rlframe.policy.users_code import method, overridden_by_user
from rlframe.utils.seeding import derive_seed


class LearningParts:
    """The hooks by which the class of an algorithm says what a `LearningPolicy` is made of, and what builds it."""

    #: Name of the network that gives distribution inputs for observations, where there are `networks`.
    acting_network = "actor"
    #: Whether `encoder` may be a model with memory.
    encoder_may_remember = False
    #: Networks of which a target network holds copies; see `update_target`.
    target_networks: tuple[str, ...] = ()
    #: Networks that no optimiser steps but the policy itself in `learn_on_batch`, by the name of their loss; such as
    #: `MODEL_OUTPUTS`, with which `MODEL_VALUES` are the weights that nothing but values depends on.
    own_steps: Mapping[str, tuple[str, ...]] = {}
    #: By statistic of the class's own loss, the names under which RLlib's kept it.
    kept_names: Mapping[str, tuple[str, ...]] = {}
    #: What fills the gradients of the class's own loss without autograd; None goes by autograd.
    fused_gradients: FusedGradients | None = None
    #: What gives the second derivatives of the class's own `divergence` without autograd, for `second_order`.
    fused_curvature: FusedGradients | None = None
    #: A frozen copy of `target_networks`, under their names; there where they are.
    target_network: Any
    #: Its networks, as attributes; one that is there before becomes the copy of the whole model.
    target_model: Any = None
    #: The target network's model by the policy's own.
    target_models: Mapping[Any, Any]
    #: `fn(policy, model, dist_class, train_batch)`, where the loss is no method.
    _given_loss: Callable[..., Any] | None = None
    _per_row: tuple[str, ...] | None
    _due: frozenset[str]

    def prepare(self: Any) -> None:
        """Called before anything is built, with spaces and config known; a hook for checks and settings."""

    def networks(self: Any) -> Mapping[str, Part]:
        """Returns the policy's networks and variables by name; none: the one model that the config describes."""
        return {}

    def encoder(self: Any) -> dict[str, Any] | None:
        """Returns the `model` section of a network that makes features of observations for all others, or None."""
        return None

    def acting_view(self: Any) -> ActingView | None:
        """Returns how the acting network sees observations of several agents at once; None for those of one."""
        return None

    def optimizers(self: Any) -> Mapping[str, OptimizerSpec]:
        """Returns the optimisers of `networks`, by the names that `LossOutput.losses` gives losses for them."""
        return {}

    def epsilon(self: Any, spec: OptimizerSpec) -> Any:
        """Returns RMSProp's ε for the batch now learned from: a number or a tensor."""
        return self._for_mean(spec, spec.eps)

    def due(self: Any, name: str) -> bool:
        """Returns whether an optimiser steps in the update that the loss is computed for; see `OptimizerSpec.every`.

        Or whether the policy itself steps networks, by their name in `own_steps`.
        """
        return name in self._due

    @contextlib.contextmanager
    def only_due(self: Any, *names: str) -> Iterator[None]:
        """A context in which the loss is computed for some optimisers, or steps of the policy's own, alone."""
        before, self._due = self._due, frozenset(names)
        try:
            yield
        finally:
            self._due = before

    def padded_sequences(self: Any, batch: SampleBatch) -> SampleBatch:
        """Returns rows of a policy with memory as its loss gets them: padded sequences, with `valid_mask`."""
        return padded_sequences(batch, self.max_seq_len)

    def counted_rows(self: Any, batch: Mapping[str, Any]) -> Any:
        """Returns which rows of a batch of tensors count in the loss, bool `[B]`; None for all of them."""
        return batch.get(VALID_MASK)

    def _weights_by_optimizer(self: Any) -> Iterator[tuple[OptimizerSpec, dict[str, Any]]]:
        """Yields the optimisers' specs, each with the weights that it steps, by name; checks that they fit."""
        names = [*self.networks(), *(["encoder"] if self.encoder() else [])]
        if not names:
            whole = any(spec.networks == WHOLE_MODEL for spec in self.optimizer_specs.values())
            names = list(WHOLE_MODEL if whole else MODEL_OUTPUTS + MODEL_VALUES)
        check_optimizers(type(self).__name__, names, self.optimizer_specs, self.own_steps)
        for spec in self.optimizer_specs.values():
            yield spec, self.weights_of(spec.networks)

    def weights_of(self: Any, networks: tuple[str, ...]) -> dict[str, Any]:
        """Returns the weights of some networks, in the framework's tensors, by name; see `OptimizerSpec.networks`."""
        if networks == WHOLE_MODEL:
            found: dict[str, Any] = self.model.trainable_variables(as_dict=True)
            return found
        if networks in (MODEL_OUTPUTS, MODEL_VALUES):
            self._model_parts = self._model_parts or split_model(self)
            part: dict[str, Any] = self._model_parts[networks]
            return part
        parts = [self.model.weights_of(network) for network in networks]
        return {name: weight for weights in parts for name, weight in weights.items()}

    def make_components(self: Any) -> dict[str, Component]:
        """Returns parts with a state of their own, by name; called when model and optimisers are there."""
        return {}

    def stream_seed(self: Any, *path: int | str) -> int:
        """Returns the seed of this policy's random stream named by `path`."""
        return derive_seed(self._policy_seed, self.framework, *self._agent_stream, *path)

    def make_model_and_dist(self: Any) -> tuple[Any, Any]:
        """Returns the model and the framework's distribution class that the config describes."""
        model_config = self.config["model"]
        dist_class, num_outputs = ModelCatalog.get_action_dist(
            self.action_space,
            model_config,
            dist_type=model_config.get("custom_action_dist") or self.dist_type,
            framework=self.framework,
        )
        parts = self.networks()
        if parts:
            return make_networks(self, parts, num_outputs), dist_class
        model = ModelCatalog.get_model_v2(
            obs_space=self.observation_space,
            action_space=self.action_space,
            num_outputs=num_outputs,
            model_config=self.model_options(),
            framework=self.framework,
        )
        self.check_model(model, num_outputs)
        return model, dist_class

    def model_options(self: Any) -> dict[str, Any]:
        """Returns the `model` section of the config as the model gets it; a hook for what only policies know."""
        options: dict[str, Any] = self.config["model"]
        return options

    def check_model(self: Any, model: Any, num_outputs: int | None) -> None:
        """Raises a ValueError where the model gives something else than `num_outputs` numbers per row."""
        raise NotImplementedError

    def make_generator(self: Any, *path: int | str) -> Any:
        """Returns a random stream of the framework for this policy alone, named by `path`."""
        raise NotImplementedError

    def seeded(self: Any, *path: int | str) -> Any:
        """Returns a context in which the framework draws from this policy's own stream named by `path`."""
        raise NotImplementedError

    def loss_initialized(self: Any) -> bool:
        """Returns whether the first run of loss and postprocessing is over; what they get from then on is real."""
        return bool(self._loss_initialized)

    def _initialize_loss_from_dummy_batch(
        self: Any, auto_remove_unneeded_view_reqs: bool = True, stats_fn: Callable[[Any, Any], Any] | None = None
    ) -> None:
        """Runs both, whoever wrote them, and `stats_fn(policy, train_batch)` behind; users' classes call it."""
        initialize_loss(self, stats_fn)

    def _loss_of_zeros(self: Any, samples: SampleBatch, stats_fn: Callable[[Any, Any], Any] | None) -> None:
        """Calls the user's loss, if there is one, and `stats_fn` with postprocessed rows."""
        raise NotImplementedError

    def _chosen_optimizers(self: Any) -> list[Any]:
        """Returns what `optimizer()` gives, as a list; one of the user's own finds `cur_lr`, the rate to begin with."""
        lr = self.config.get("lr")
        if lr is not None and overridden_by_user(type(self), "optimizer") and not hasattr(self, "cur_lr"):
            self.cur_lr = float(schedule_of(lr, self.config.get("lr_schedule")).value(0))
        made = self.optimizer()
        return list(made) if isinstance(made, (list, tuple)) else [made]

    def _has_own_loss(self: Any) -> bool:
        """Returns whether the loss is the user's own, a function or a method."""
        return self._given_loss is not None or overridden_by_user(type(self), "loss")

    @property
    def _loss(self: Any) -> Any:
        """The loss as RLlib's programs call it: `policy._loss(policy, model, dist_class, train_batch)`.

        It returns a scalar, or a list with one per optimiser; None without a loss. One that a program sets is learned
        by.
        """
        if self._given_loss is not None:
            return self._given_loss
        return None if type(self).loss is self._plain.loss else _called_as_in_rllib

    @_loss.setter
    def _loss(self: Any, loss: Callable[..., Any]) -> None:
        vars(self).update(_given_loss=loss, loss=functools.partial(loss, self))
        self.forget_traces()

    def as_tensors(self: Any, batch: Any) -> Any:
        """Returns the batch that a program calls a loss with by hand; policies of TensorFlow make tensors of arrays."""
        return batch

    def second_order(self: Any, name: str) -> SecondOrder:
        """Returns the loss of networks that the policy steps itself, and its `divergence`, with their derivatives.

        Args:
            name: Name of the loss in `own_steps`, or of an optimiser whose gradient the policy finds itself.
        """
        raise NotImplementedError

    def weights_stepped_by(self: Any, name: str) -> dict[str, Any]:
        """Returns the weights that a step of the policy's own, or an optimiser, moves, by name."""
        own = self.own_steps.get(name)
        stepped: dict[str, Any] = self.weights_of(self.optimizer_specs[name].networks if own is None else own)
        return stepped

    def _refuse_gradients_apart(self: Any) -> None:
        """Raises a ValueError where the policy has steps of its own, which are no gradients."""
        if self.own_steps:
            raise ValueError(
                f"{type(self).__name__} steps its networks by more than a gradient: it has no gradients to compute "
                "apart; call learn_on_batch()"
            )

    def _modules_by_role(self: Any) -> dict[str, Any]:
        """Returns the policy's networks, e.g. `{"online": ..., "target": ...}`."""
        target = self.__dict__.get("target_network")
        return {"online": self.model} if target is None else {"online": self.model, "target": target.model}

    @contextlib.contextmanager
    def _computing_with(self: Any, modules: Mapping[str, Any]) -> Iterator[None]:
        """A context in which the policy's networks are others, named by role as in `_modules_by_role`."""
        target = self.__dict__.get("target_network")
        model, self.model = self.model, modules["online"]
        if target is not None:
            kept = target.model
            target.model = self.target_model = modules["target"]
        try:
            yield
        finally:
            self.model = model
            if target is not None:
                target.model = self.target_model = kept

    def _extra_weights(self: Any) -> dict[str, NDArray[Any]]:
        """Returns the components' arrays among the policy's weights."""
        found: dict[str, NDArray[Any]] = {}
        for part in self.components.values():
            found.update(part.extra_weights())
        return found

    def _network_weights(self: Any, weights: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the policy's weights without the components' arrays."""
        for part in self.components.values():
            weights = part.without_extra(weights)
        return weights

    def weights_norm(self: Any) -> Any:
        """Returns the global L2 norm of the weights, a scalar tensor."""
        raise NotImplementedError

    def get_tower_stats(self: Any, stats_name: str) -> list[Any]:
        """Returns what the loss kept in `model.tower_stats[stats_name]`, one entry per device; of a built-in loss, one.

        Raises:
            KeyError: If it kept nothing under this name.
        """
        towers = [tower.tower_stats[stats_name] for tower in self.model_gpu_towers if stats_name in tower.tower_stats]
        statistics = [name for name, given in self.kept_names.items() if stats_name in given]
        towers = towers or [
            self._loss_outputs[name] for name in (*statistics, stats_name) if name in self._loss_outputs
        ]
        if not towers:
            raise KeyError(f"the loss kept no {stats_name!r} in model.tower_stats")
        return towers


def _called_as_in_rllib(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
    made = method(policy, "loss")(model, dist_class, policy.as_tensors(train_batch))
    return kept(policy, made) if isinstance(made, LossOutput) else made
