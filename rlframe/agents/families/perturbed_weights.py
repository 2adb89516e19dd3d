"""Policies whose weights are searched by noise, an episode at a time: acting, returns and noise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.perturbed_networks import DenseNetwork, FrameworkNetwork
from rlframe.data.columns import EPS_ID, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.numpy_dists import numpy_dist_for
from rlframe.models.spec import Layer
from rlframe.policy.inference import Acted, Columns, Inference, NumpyInference, Outputs, Wanted
from rlframe.policy.parts import Component
from rlframe.policy.policy import Policy
from rlframe.utils.errors import NonFiniteError
from rlframe.utils.seeding import make_rng

NOISE_PAIR, NOISE_SIGN = "noise_pair", "noise_sign"
Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Perturbation:
    """Which noise an episode's weights have: θ + sign · σ · ε, with ε drawn from `pair`.

    Attributes:
        pair: A number that two episodes of one place share.
        sign: 1 and −1; 0 in both where they are played without noise.
    """

    pair: int
    sign: int

    @classmethod
    def of(cls, episode_id: int, seed: int, share_without: float) -> Perturbation:
        """Returns that of an episode; ids of one place follow each other, so that two neighbours are a pair."""
        pair = int(episode_id) >> 1
        without = share_without > 0 and make_rng(seed, "evaluation", pair).random() < share_without
        return cls(pair, 0 if without else 1 - 2 * (int(episode_id) & 1))


_NONE = Perturbation(0, 0)


class PerturbedInference(NumpyInference):
    """Acts for each episode with the weights that its noise makes of the policy's; without noise unless it explores."""

    shows_episodes = True

    def __init__(self, policy: PerturbedPolicy) -> None:
        super().__init__(policy, actor=None)
        self._rows: Sequence[tuple[Any, Any]] = ()
        self._noise_of_rows: list[Perturbation] = []
        # Of the episodes that acted last, and of their noise.
        self._known: dict[int, Perturbation] = {}
        self._actors: dict[Perturbation, Any] = {}

    def forget(self) -> None:
        """Makes networks anew before the next action: the weights have changed."""
        self._actors.clear()

    def act_for(self, rows: Sequence[tuple[Any, Any]]) -> None:
        """Notes whose rows come next."""
        self._rows = rows

    def act(self, columns: Columns, explore: bool, timestep: int | None, wanted: Wanted) -> Acted:
        """Returns actions, and of each row which noise acted."""
        rows, self._rows = self._rows, ()
        self._noise_of_rows = found = self._perturbations(rows) if explore else []
        if len(found) != len(columns[OBS]):  # who asks is no sampler, and knows of no episodes
            self._noise_of_rows = found = [_NONE] * len(columns[OBS])
        actions, made = super().act(columns, explore, timestep, wanted)
        self._noise_of_rows = []
        made[NOISE_PAIR] = np.array([perturbation.pair for perturbation in found], np.int64)
        made[NOISE_SIGN] = np.array([perturbation.sign for perturbation in found], np.int8)
        return self.policy.with_action_noise(actions, made[NOISE_SIGN] != 0), made

    def _perturbations(self, rows: Sequence[tuple[Any, Any]]) -> list[Perturbation]:
        ids = [int(episode.episode_id) for episode, _ in rows]
        if not self._known.keys() >= set(ids):
            share = float(self.policy.config["eval_prob"])
            seed = self.policy.noise_seed
            self._known = {
                number: self._known.get(number) or Perturbation.of(number, seed, share) for number in dict.fromkeys(ids)
            }
            self._actors = {key: actor for key, actor in self._actors.items() if key in self._known.values()}
        return [self._known[number] for number in ids]

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns distribution inputs `[B, K]`, each row's by its own network."""
        del explore  # `act` has chosen the noise
        obs, found = columns[OBS], self._noise_of_rows or [_NONE]
        kinds = dict.fromkeys(found)
        if len(kinds) == 1:
            return self._actor(found[0]).forward(obs), None, []
        outputs = np.zeros((len(obs), self.policy.num_outputs), np.float32)
        for perturbation in kinds:
            rows = [index for index, other in enumerate(found) if other is perturbation or other == perturbation]
            outputs[rows] = self._actor(perturbation).forward(obs[rows])
        return outputs, None, []

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns zeros: there is no value function."""
        return np.zeros(len(obs), np.float32)

    def _actor(self, perturbation: Perturbation) -> Any:
        if perturbation not in self._actors:
            self._actors[perturbation] = self.policy.actor_with(perturbation)
        return self._actors[perturbation]


class PerturbedPolicy(Policy):
    """A network whose weights are noisy for an episode at a time; subclasses say what they learn of it.

    Discrete actions are drawn from the network's probabilities, continuous ones are its outputs. The default network of
    vectors acts in NumPy, those of images and nested observations and models of the user's own in their framework.
    """

    train_columns = (NOISE_PAIR, NOISE_SIGN)

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], config: dict[str, Any]) -> None:
        super().__init__(observation_space, action_space, config)
        self._learn_hook: Callable[..., None] | None = None  # the worker sets it
        self.dist_type = "deterministic" if isinstance(self.action_space, gym.spaces.Box) else None
        self._network: DenseNetwork | FrameworkNetwork
        if DenseNetwork.fits(self):
            self.numpy_dist, self.num_outputs = numpy_dist_for(self.action_space, self.dist_type)
            rng = make_rng(self._policy_seed, "weights", *self._agent_stream)
            self._network = DenseNetwork(self.observation_space, self.num_outputs, self.config["model"], rng)
        else:
            self._network = FrameworkNetwork(self)
            self.numpy_dist, self.num_outputs = self._network.numpy_dist, self._network.num_outputs
        self.exploration = self._create_exploration()
        self._arrays = self._network.arrays
        self.components["evaluated"] = self._evaluated = _Evaluated(int(self.config["report_length"]))

    def _built_in_inference(self) -> Inference:
        return PerturbedInference(self)

    # --- acting -----------------------------------------------------------------------------------------------

    @property
    def acting_layers(self) -> tuple[Layer, ...] | None:
        """The network's layers, whose weights are those of `get_weights`; exports read them. None for a model."""
        return self._network.layers

    @property
    def model(self) -> Any:
        """The framework's model, with the weights without noise; the default network of vectors has none."""
        return self._network.model(self._arrays)

    @property
    def noise_seed(self) -> int:
        """Seed of all noise; the same in all workers."""
        return self._policy_seed

    def noise(self, pair: int) -> Vector:
        """Returns ε, standard normal, float32 `[P]`."""
        rng = make_rng(self.noise_seed, "noise", *self._agent_stream, int(pair))
        return rng.standard_normal(len(self.get_flat_weights()), np.float32)

    def actor_with(self, perturbation: Perturbation) -> Any:
        """Returns the network with an episode's noise on its weights."""
        if perturbation.sign == 0:
            return self._network.actor(self._arrays)
        flat = self.get_flat_weights() + np.float32(perturbation.sign * self.config["noise_stdev"]) * self.noise(
            perturbation.pair
        )
        return self._network.actor(self.unflattened(flat))

    def with_action_noise(self, actions: Any, noisy: NDArray[np.bool_]) -> Any:
        """Returns continuous actions `[B, ...]` with `action_noise_std` on the rows that are `noisy`."""
        std = float(self.config["action_noise_std"])
        if std == 0 or not isinstance(self.action_space, gym.spaces.Box) or not noisy.any():
            return actions
        drawn = self._action_rng.standard_normal(np.shape(actions), np.float32)
        return actions + std * drawn * noisy.reshape(-1, *[1] * (np.ndim(actions) - 1))

    # --- weights ----------------------------------------------------------------------------------------------

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns copies of the weights by name."""
        return {name: array.copy() for name, array in self._arrays.items()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes weights by name."""
        self._arrays = {name: np.array(weights[name], np.float32) for name in self._arrays}
        inference = self.inference.built_in
        if isinstance(inference, PerturbedInference):
            inference.forget()

    # --- learning ---------------------------------------------------------------------------------------------

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, Any]:
        """Moves the weights by what noise made of returns.

        Args:
            samples: Rows of whole episodes, with `noise_pair` and `noise_sign`.

        Returns:
            `{"learner_stats": ..., "custom_metrics": ...}`.

        Raises:
            NonFiniteError: If a return is NaN or infinite.
        """
        custom: dict[str, Any] = {}
        if self._learn_hook is not None:
            self._learn_hook(policy=self, train_batch=samples, result=custom)
        pairs, signs, returns = self._returns(samples)
        without = signs == 0
        self._evaluated.add(returns[without])
        before = self.get_flat_weights()
        step, stats = self.step_of(pairs[~without], signs[~without], returns[~without])
        self.set_flat_weights(before + step)
        size = float(np.linalg.norm(before))
        return {
            "learner_stats": {
                "episodes": len(returns),
                "return_mean": float(returns.mean()),
                "eval_reward_mean": self._evaluated.mean(),
                "weights_norm": size,
                "update_ratio": float(np.linalg.norm(step)) / (size + 1e-12),
                **stats,
            },
            "custom_metrics": custom,
        }

    def _returns(self, samples: SampleBatch) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Returns of each episode its pair, its sign and its return `[N]`, sums of `rewarded`."""
        ids, first, inverse = np.unique(np.asarray(samples[EPS_ID]), return_index=True, return_inverse=True)
        rewards = self.rewarded(np.asarray(samples[REWARDS], np.float64))
        returns = np.bincount(inverse, rewards, len(ids)).astype(np.float64)
        if not np.isfinite(returns).all():
            raise NonFiniteError(
                f"{type(self).__name__}: the return of an episode is {returns[~np.isfinite(returns)][0]}"
            )
        pairs, signs = np.asarray(samples[NOISE_PAIR])[first], np.asarray(samples[NOISE_SIGN])[first]
        return pairs.astype(np.int64), signs.astype(np.int64), returns

    def rewarded(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns what of the rewards `[B]` counts."""
        return rewards

    def step_of(
        self, pairs: NDArray[np.int64], signs: NDArray[np.int64], returns: NDArray[np.float64]
    ) -> tuple[Vector, dict[str, float]]:
        """Returns by how much the weights `[P]` move, and statistics, of episodes with noise `[N]`."""
        raise NotImplementedError(f"{type(self).__name__} must define step_of()")

    def weighted_noise(self, pairs: Sequence[int], weights: Sequence[float]) -> Vector:
        """Returns Σ weight · ε over pairs, float32 `[P]`; one noise vector at a time is held."""
        total = np.zeros(len(self.get_flat_weights()), np.float32)
        for pair, weight in zip(pairs, weights, strict=True):
            if weight:
                total += np.float32(weight) * self.noise(pair)
        return total


class _Evaluated(Component):
    """Returns of the last episodes without noise.

    Args:
        size: How many are kept.
    """

    def __init__(self, size: int) -> None:
        self._returns: deque[float] = deque(maxlen=size)

    def add(self, returns: NDArray[np.float64]) -> None:
        """Takes returns `[N]`."""
        self._returns.extend(returns.tolist())

    def mean(self) -> float:
        """Returns their mean, NaN where there are none."""
        return float(np.mean(self._returns)) if self._returns else math.nan

    def get_state(self) -> dict[str, Any]:
        """Returns them."""
        return {"returns": list(self._returns)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        self._returns.clear()
        self._returns.extend(float(value) for value in state["returns"])
