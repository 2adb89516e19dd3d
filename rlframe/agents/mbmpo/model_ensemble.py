"""An ensemble of learned dynamics: what a step changes of an observation, by what was sampled; for both frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import ACTIONS, NEXT_OBS, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.wrappers.model_vector_env import action_rows
from rlframe.models.actor import ChainActor
from rlframe.models.spec import Dense, Network, Part, dense_layers
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, LossOutput
from rlframe.policy.policy import Component
from rlframe.tensor import ops
from rlframe.utils.seeding import derive_seed, make_rng

if TYPE_CHECKING:
    from rlframe.agents.mbmpo.mbmpo import MBMPOConfig

Rows = NDArray[np.float32]
#: Means and standard deviations of a column, float32 `[D]` each.
Moments = tuple[Rows, Rows]
#: Name of the moments of what a step changes.
DELTA = "delta"


def mean_std_stats(dataset: Mapping[str, Rows]) -> dict[str, Moments]:
    """Returns the moments of observations, of actions, and of what a step changes, of columns `[B, ...]`."""
    columns = {OBS: dataset[OBS], ACTIONS: dataset[ACTIONS], DELTA: dataset[NEXT_OBS] - dataset[OBS]}
    wide = {name: np.asarray(column, np.float64) for name, column in columns.items()}
    return {
        name: (column.mean(0).astype(np.float32), column.std(0).astype(np.float32)) for name, column in wide.items()
    }


def normalize(data_array: Rows, stats: Moments) -> Rows:
    """Returns (x − μ) / (σ + 1e-10); x − μ of columns that never changed."""
    return np.asarray((data_array - stats[0]) / _scale(stats[1]), np.float32)


def denormalize(data_array: Rows, stats: Moments) -> Rows:
    """Undoes `normalize`."""
    return np.asarray(data_array * _scale(stats[1]) + stats[0], np.float32)


def _scale(std: Rows) -> Rows:
    return np.where(std > 0, std + np.float32(1e-10), np.float32(1.0))


class EarlyStop:
    """Says when a model has learned enough: the moving average of its held-out loss v grows.

    m_0 = 1.475 v_0,    m_k = 0.95 m_k−1 + 0.05 v_k,    stops behind the first k > 0 with m_k > m_k−1
    """

    def __init__(self) -> None:
        self._average: float | None = None

    def __call__(self, loss: float) -> bool:
        """Takes the loss of the next epoch; returns whether it was the last."""
        before = 1.5 * loss if self._average is None else self._average
        first, self._average = self._average is None, 0.95 * before + 0.05 * loss
        return not first and self._average > before


@dataclass(frozen=True)
class DynamicsModel:
    """One model as workers have it, in NumPy.

        s' = s + σ_Δ f((s − μ_s) / σ_s, (a − μ_a) / σ_a) + μ_Δ

    Attributes:
        layers: Of f, as plain data.
        weights: Of f.
        normalizations: Moments by column; none where data is taken as it is.
    """

    layers: list[dict[str, Any]]
    weights: Mapping[str, Rows]
    normalizations: Mapping[str, Moments]

    @cached_property
    def _network(self) -> ChainActor:
        return ChainActor({"outputs": self.layers, "values": None}, self.weights)

    def inputs(self, obs: Rows, actions: Rows) -> Rows:
        """Returns what f sees, `[B, D + A]`, of observations `[B, D]` and action rows `[B, A]`."""
        if not self.normalizations:
            return np.concatenate([obs, actions], 1, dtype=np.float32)
        norms = self.normalizations
        return np.concatenate([normalize(obs, norms[OBS]), normalize(actions, norms[ACTIONS])], 1)

    def targets(self, obs: Rows, next_obs: Rows) -> Rows:
        """Returns what f shall give, `[B, D]`."""
        delta = next_obs - obs
        return normalize(delta, self.normalizations[DELTA]) if self.normalizations else delta

    def loss(self, inputs: Rows, targets: Rows) -> float:
        """Returns the mean squared error of f."""
        return float(np.square(self._network.forward(inputs) - targets).mean())

    def next_obs(self, obs: Rows, actions: Rows) -> Rows:
        """Returns s' for observations `[B, D]` and action rows `[B, A]`; float32 `[B, D]`."""
        found = self._network.forward(self.inputs(obs, actions))
        return obs + (denormalize(found, self.normalizations[DELTA]) if self.normalizations else found)


class DynamicsPolicy(LearningPolicy):
    """A network f that learns by least squares, and never acts: rows have its inputs as `obs`, targets as `new_obs`."""

    config: MBMPOConfig
    defaults_from = "rlframe.agents.mbmpo.mbmpo:DEFAULT_CONFIG"
    acting_network = "dynamics"
    dist_type = "deterministic"
    learn_columns = (OBS, NEXT_OBS)

    def networks(self) -> Mapping[str, Part]:
        """Returns f: rectified layers."""
        inputs, outputs = (gym.spaces.flatdim(space) for space in (self.observation_space, self.action_space))
        hidden = dense_layers(self.config["dynamics_model"]["fcnet_hiddens"], "relu")
        return {"dynamics": Network({OBS: inputs}, (*hidden, Dense("output", "linear", outputs)))}

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam."""
        return {"dynamics": AdamSpec(("dynamics",), self.config["dynamics_model"]["lr"])}

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the mean squared error."""
        del dist_class
        error = ops.mean(ops.square(model.dynamics(train_batch[OBS]) - train_batch[NEXT_OBS]))
        return LossOutput(error, {"loss": error})


class DynamicsEnsemble(Component):
    """Models that learn the same rows, each from other first weights, with other rows held out, in another order.

    Args:
        policy: The policy that is trained in them.

    Attributes:
        num_models: How many there are.
        replay_buffer: The last rows that were sampled: observations, action rows and next observations.
        normalizations: Their moments; see `mean_std_stats`.
        fits: How often the models were fitted.

    Sources: Kurutach et al. 2018, "Model-Ensemble Trust-Region Policy Optimization"; Clavera et al. 2018, "Model-Based
    Reinforcement Learning via Meta-Policy Optimization".
    """

    replay_buffer_max = 10_000

    def __init__(self, policy: Any) -> None:
        self._policy, self._config = policy, policy.config["dynamics_model"]
        self.num_models = int(self._config["ensemble_size"])
        self.replay_buffer: dict[str, Rows] = {}
        self.normalizations: dict[str, Moments] = {}
        self.fits = 0
        self._rng = make_rng(policy._policy_seed, "dynamics")

    @cached_property
    def members(self) -> list[Any]:
        """The policies that learn, one for each model; made when they are asked for, since workers need none."""
        policy = self._policy
        width, actions = policy.observation_space.shape[0], gym.spaces.flatdim(policy.action_space)
        spaces = [gym.spaces.Box(-np.inf, np.inf, (size,), np.float32) for size in (width + actions, width)]
        learner = globals()["__getattr__"]("DynamicsTFPolicy" if policy.framework == "tf" else "DynamicsTorchPolicy")
        seeds = [derive_seed(policy._policy_seed, "dynamics", place) for place in range(self.num_models)]
        return [learner(*spaces, {**policy.config, "exploration_config": {}, "seed": seed}) for seed in seeds]

    def model(self, place: int) -> DynamicsModel:
        """Returns a copy of a model as it is now."""
        member = self.members[place]
        return DynamicsModel(
            member.model.parts["dynamics"].prefixed("dynamics"), member.get_weights(), self.normalizations
        )

    def add(self, rows: SampleBatch) -> None:
        """Takes rows that were sampled, with `new_obs`; the oldest ones make way for them."""
        policy = self._policy
        actions = action_rows(policy.action_space, policy.to_env_actions(rows[ACTIONS]))
        found = {OBS: rows[OBS], ACTIONS: actions, NEXT_OBS: rows[NEXT_OBS]}
        for name, column in found.items():
            joined = np.concatenate([*([self.replay_buffer[name]] if self.replay_buffer else []), column])
            found[name] = np.asarray(joined[-self.replay_buffer_max :], np.float32)
        self.replay_buffer = found

    def fit(self) -> dict[str, Any]:
        """Fits all models to the rows; returns `epochs`, `train_loss` and `valid_loss` of each, `[M]`."""
        if self._config["normalize_data"]:
            self.normalizations = mean_std_stats(self.replay_buffer)
        told = [self._fit(place) for place in range(self.num_models)]
        self.fits += 1
        names = ("epochs", "train_loss", "valid_loss")
        return {name: np.array(column) for name, column in zip(names, zip(*told, strict=True), strict=True)}

    def _fit(self, place: int) -> tuple[int, float, float]:
        config, rows, model = self._config, self.replay_buffer, self.model(place)
        inputs, targets = model.inputs(rows[OBS], rows[ACTIONS]), model.targets(rows[OBS], rows[NEXT_OBS])
        order = self._rng.permutation(len(inputs))
        train, held = np.split(
            order, [min(max(int(len(order) * (1 - config["valid_split_ratio"])), 1), len(order) - 1)]
        )
        enough, epoch, losses, loss = EarlyStop(), 0, [], 0.0
        while epoch < config["train_epochs"]:
            losses = [
                self.members[place].learn_on_batch(SampleBatch({OBS: inputs[some], NEXT_OBS: targets[some]}))
                for some in _batches(self._rng.permutation(train), config["batch_size"])
            ]
            loss, epoch = self.model(place).loss(inputs[held], targets[held]), epoch + 1
            if enough(loss):
                break
        return epoch, float(np.mean([told["learner_stats"]["loss"] for told in losses])), loss

    def get_state(self) -> dict[str, Any]:
        """Returns rows, moments, models with their optimisers, and the stream of their order."""
        if not self.fits:
            return {}
        norms = {name: dict(zip(("mean", "std"), stats, strict=True)) for name, stats in self.normalizations.items()}
        return {
            "fits": self.fits, "rows": self.replay_buffer, "normalizations": norms,
            "rng": self._rng.bit_generator.state, "members": [member.get_state() for member in self.members],
        }  # fmt: skip

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self.fits, self.replay_buffer = int(state["fits"]), dict(state["rows"])
        self.normalizations = {name: (part["mean"], part["std"]) for name, part in state["normalizations"].items()}
        self._rng.bit_generator.state = state["rng"]
        for member, part in zip(self.members, state["members"], strict=True):
            member.set_state(part)


def _batches(order: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    """Yields the rows of one pass, so many at a time; the last ones may be fewer."""
    yield from (order[start : start + size] for start in range(0, len(order), size))


__getattr__ = lazy_policies(__name__, DynamicsPolicy, DynamicsTorchPolicy="torch", DynamicsTFPolicy="tf")
