"""AlphaZero: the loss and the policy, which acts by a search that sees the episode, for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.agents.alpha_zero.mcts import MCTS, Node, Simulator, Vector, with_state
from rlframe.data.columns import EPS_ID, OBS, REWARDS, VALUE_TARGETS
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.env_context import EnvContext
from rlframe.losses.masking import valid_mean
from rlframe.models.action_mask import ACTION_MASK, LOGIT_OF_FORBIDDEN
from rlframe.models.catalog import ModelCatalog, has_action_mask
from rlframe.models.nested_parts import columns_of_part
from rlframe.policy.backends import lazy_policies
from rlframe.policy.inference import Acted, Columns, Inference, Outputs, Wanted
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.numpy_policy import ActingRecipe
from rlframe.policy.parts import WHOLE_MODEL, AdamSpec, Component, LossOutput
from rlframe.policy.policy import LearningRate
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.trainer.setup import resolve_trainer_env
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from rlframe.utils.numpy import softmax
from rlframe.utils.seeding import derive_seed, make_rng

if TYPE_CHECKING:
    from rlframe.agents.alpha_zero.alpha_zero import AlphaZeroConfig

MCTS_POLICIES: Final = "mcts_policies"
"""How often the search took each action, raised to τ, as probabilities. float32 `[B, A]`."""
OUTCOMES: Final = "outcomes"
"""Return of the episode that a step belongs to, in env reward units. float32 `[B]`."""


def search_loss(model: Any, train_batch: SampleBatch, mask: Tensor | None) -> LossOutput:
    """Returns the loss of one batch, a scalar.

        ½ mean[ −Σ_a π(a) log p(a|s) + (z − V(s))² ]

    π is the tree policy, z what the episode was worth, p the network's policy on the actions that are allowed.

    Args:
        model: Called with the batch, it gives logits `[B, A]`; then it has values `[B]`.
        train_batch: Has `obs`, `mcts_policies` and `value_targets`.
        mask: Which actions are allowed, above ½ where they are, `[B, A]`; None allows all.

    Source: Silver et al. 2017, eq. 1, without weight decay.
    """
    logits, _ = model(train_batch)
    mean = valid_mean(train_batch)
    allowed = ops.ones_like(logits) > 0.5 if mask is None else mask > 0.5
    logp = ops.where(allowed, ops.log_softmax(ops.where(allowed, logits, LOGIT_OF_FORBIDDEN)), 0.0)
    policy_loss = mean(-ops.sum(train_batch[MCTS_POLICIES] * logp, -1))
    value_loss = mean(ops.square(train_batch[VALUE_TARGETS] - model.value_function()))
    total = 0.5 * (policy_loss + value_loss)
    return LossOutput(total, {"total_loss": total, "policy_loss": policy_loss, "value_loss": value_loss})


class RankedRewards(Component):
    """The last outcomes, against which new ones are ranked; among the policy's weights, so that all workers have them.

    Source: Laterre et al. 2018, "Ranked Reward: Enabling Self-Play Reinforcement Learning for Combinatorial
    Optimization", section 3.2.

    Args:
        policy: The policy.
    """

    _NAMES = ("ranked_rewards.outcomes", "ranked_rewards.count")

    def __init__(self, policy: Any) -> None:
        self._policy, self._options = policy, policy.config["ranked_rewards"]
        self._outcomes = np.zeros(int(self._options["buffer_max_length"]), np.float32)
        self._count = 0  # outcomes ever added
        self._bar: float | None = None

    def add(self, outcome: float) -> None:
        """Adds an outcome; the oldest goes where there are too many."""
        self._outcomes[self._count % len(self._outcomes)] = outcome
        self._count += 1
        self._bar = None

    def worth(self, outcome: float) -> float:
        """Returns 1 or −1, the outcome itself where outcomes are not ranked."""
        if not self._options["enable"]:
            return float(outcome)
        if self._bar is None:
            self.begin()
            known = self._outcomes[: self._count]
            self._bar = float(np.percentile(known, self._options["percentile"])) if len(known) else -np.inf
        return 1.0 if outcome >= self._bar else -1.0

    def begin(self) -> None:
        """Plays at random for the first outcomes: the same ones in all workers."""
        options, policy = self._options, self._policy
        if self._count == 0 and options["enable"] and options["initialize_buffer"]:
            rng = make_rng(policy._policy_seed, "ranked_rewards")
            for _ in range(options["num_init_rewards"]):
                self.add(policy.simulator.random_return(rng, policy.mask_of))

    def extra_weights(self) -> dict[str, NDArray[Any]]:
        """Returns the outcomes `[buffer_max_length]`, and how many were added."""
        return dict(zip(self._NAMES, (self._outcomes.copy(), np.array([self._count], np.int64)), strict=True))

    def without_extra(self, weights: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the network's weights."""
        return {name: array for name, array in weights.items() if name not in self._NAMES}

    def take_extra(self, weights: Mapping[str, Any]) -> None:
        """Takes outcomes, where the weights have any."""
        if self._NAMES[0] in weights:
            self._outcomes = np.array(weights[self._NAMES[0]], np.float32)
            self._count, self._bar = int(np.asarray(weights[self._NAMES[1]])[0]), None


class TreeSearchInference(Inference):
    """Acts by a search from the state that each episode is in; by the network alone for who shows no episode.

    Args:
        policy: The policy.
        network: How its network passes.
    """

    shows_episodes = True

    def __init__(self, policy: AlphaZeroPolicy, network: Inference) -> None:
        super().__init__(policy)
        self._network = network
        self._rows: Sequence[tuple[Any, Any]] = ()
        self._trees: dict[int, Node] = {}

    def act_for(self, rows: Sequence[tuple[Any, Any]]) -> None:
        """Notes whose rows come next."""
        self._rows = rows

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns logits `[B, A]`, lowest where actions are forbidden, and values `[B]`."""
        logits, values, states = self._network.run(columns, explore)
        allowed = self.policy.allowed(columns[OBS])
        return (logits if allowed is None else np.where(allowed, logits, LOGIT_OF_FORBIDDEN)), values, states

    def act(self, columns: Columns, explore: bool, timestep: int | None, wanted: Wanted) -> Acted:
        """Returns actions `[B]`, and the tree policies as a column."""
        rows, self._rows = self._rows, ()
        obs, policy = columns[OBS], self.policy
        if len(rows) != len(obs):
            actions, made = super().act(columns, explore, timestep, wanted)
            if wanted is not None and MCTS_POLICIES in wanted:
                made[MCTS_POLICIES] = softmax(self.run(columns, explore)[0])
            return actions, made
        policy.ranked.begin()
        search = MCTS(
            policy.simulator, self.evaluate, policy.ranked.worth, policy.config["mcts_config"], policy._action_rng
        )
        trees, found, actions = {}, [], []
        for (episode, _), seen in zip(rows, obs, strict=True):
            tree_policy, action, trees[episode.episode_id] = search.compute_action(self._root(episode, seen), explore)
            found.append(tree_policy)
            actions.append(action)
        self._trees = trees
        policy.global_timestep += len(obs)
        return np.array(actions, np.int64), {MCTS_POLICIES: np.array(found, np.float32)}

    def _root(self, episode: Any, seen: NDArray[Any]) -> Node:
        """Returns the node of the state that an episode is in: that of the last search, if it foresaw what is seen."""
        node = self._trees.get(episode.episode_id)
        if node is not None and not node.done and np.array_equal(self.policy._observed(node.obs), seen):
            return node
        env = with_state(episode.worker.slots[episode.env_id].env)
        root: Node = self.policy.simulator.root(env.get_state(), float(episode.total_reward))
        return root

    def evaluate(self, obs: Any) -> tuple[Vector, float]:
        """Returns the priors `[A]` and the value of an observation of the environment."""
        policy = self.policy
        own = getattr(getattr(policy, "model", None), "compute_priors_and_value", None)
        if own is not None:  # RLlib's contract for models of AlphaZero
            priors, value = own(obs)
            kept = np.asarray(priors, np.float64) * policy.mask_of(obs)
            return kept / kept.sum(), float(value)
        logits, values, _ = self.run({OBS: policy._observed(obs)[None]}, False)
        assert values is not None  # `wants_values`
        return softmax(logits.astype(np.float64))[0], float(values[0])


class AlphaZeroPolicy(LearningPolicy):
    """A network that learns what searches with it find out."""

    config: AlphaZeroConfig
    defaults_from = "rlframe.agents.alpha_zero.alpha_zero:DEFAULT_CONFIG"
    train_columns = (EPS_ID, MCTS_POLICIES)
    learn_columns = (OBS, MCTS_POLICIES, VALUE_TARGETS)
    wants_values = True
    learns_values = True
    ranked: RankedRewards
    reported = {"cur_lr": "cur_lr"}  # noqa: RUF012
    cur_lr: float

    def prepare(self) -> None:
        """Finds the mask in observations; refuses actions that are no choices."""
        if not isinstance(self.action_space, gym.spaces.Discrete):
            raise UnsupportedSpaceException(
                f"{type(self).__name__}: got the action space {self.action_space}, wanted a Discrete one: the search "
                "tries each action"
            )
        space = getattr(self.observation_space, "original_space", self.observation_space)
        masked = isinstance(space, gym.spaces.Dict) and ACTION_MASK in space.spaces
        self._mask_columns = columns_of_part(space, ACTION_MASK) if masked else None

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the model and its distribution: with a mask, a dense network for all that is seen, the mask as well.

        The mask is put on its outputs by `run` and by the loss, not in the model, which so acts in NumPy.
        """
        count = int(self.action_space.n)  # type: ignore[attr-defined]  # Discrete
        if self.config["model"]["custom_model"] or not has_action_mask(self.observation_space, count):
            return super().make_model_and_dist()
        flat = gym.spaces.Box(-np.inf, np.inf, self.observation_space.shape, np.float32)
        dist_class, _ = ModelCatalog.get_action_dist(self.action_space, self.config["model"], framework=self.framework)
        return ModelCatalog.get_model_v2(
            obs_space=flat, action_space=self.action_space, num_outputs=count, model_config=self.model_options(),
            framework=self.framework,
        ), dist_class  # fmt: skip

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr`, clipped to `grad_clip`."""
        return {"loss": AdamSpec(WHOLE_MODEL, self.config.lr, grad_clip=self.config.grad_clip)}

    def make_components(self) -> dict[str, Component]:
        """Returns the last outcomes, and the learning rate's schedule."""
        self.ranked = RankedRewards(self)
        return {"ranked_rewards": self.ranked, "lr": LearningRate(self, self.config["lr"], self.config["lr_schedule"])}

    def _built_in_inference(self) -> Inference:
        return TreeSearchInference(self, super()._built_in_inference())

    def acting_recipe(self) -> ActingRecipe | None:
        """Returns None: a search needs the policy, not its weights alone."""
        return None

    @cached_property
    def simulator(self) -> Simulator:
        """The environment of the search."""
        _, creator = resolve_trainer_env(self.config["env"])
        if creator is None:
            raise ConfigError("env: got None, wanted the environment that is searched, also where none is stepped")
        index = int(self.config.get("worker_index", 0))
        place = EnvContext(self.config["env_config"], index, num_workers=int(self.config.get("num_workers", 0)))
        return Simulator(creator(place), derive_seed(self._policy_seed, "search", index))

    def allowed(self, obs: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Returns which actions preprocessed observations `[B, D]` allow, bool `[B, A]`; None allows all."""
        return None if self._mask_columns is None else np.asarray(obs)[:, self._mask_columns] > 0.5

    def mask_of(self, obs: Any) -> NDArray[np.bool_]:
        """Returns which actions an observation of the environment allows, bool `[A]`."""
        if self._mask_columns is None:
            return np.ones(int(self.action_space.n), np.bool_)  # type: ignore[attr-defined]  # Discrete
        return np.asarray(obs[ACTION_MASK]).reshape(-1) > 0.5

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds the return of each row's episode, `outcomes`."""
        del other_agent_batches, episode
        _, inverse = np.unique(np.asarray(sample_batch[EPS_ID]), return_inverse=True)
        rewards = np.asarray(sample_batch[REWARDS], np.float64)
        sample_batch[OUTCOMES] = np.bincount(inverse, rewards)[inverse].astype(np.float32)
        return sample_batch

    def value_rows(self, rows: SampleBatch) -> None:
        """Adds `value_targets` to sampled rows: what their episodes were worth, these being among what is ranked."""
        ids = np.asarray(rows[EPS_ID])
        _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        outcomes = np.asarray(rows[OUTCOMES], np.float64)[first]
        assert self.simulator  # an environment that nothing can search is refused, wherever it was stepped
        self.ranked.begin()
        for outcome in outcomes[np.argsort(first)]:
            self.ranked.add(float(outcome))
        worth = np.array([self.ranked.worth(float(outcome)) for outcome in outcomes], np.float32)
        rows[VALUE_TARGETS] = worth[inverse]

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `search_loss`."""
        del dist_class
        columns = self._mask_columns
        return search_loss(model, train_batch, None if columns is None else train_batch[OBS][:, columns])


__getattr__ = lazy_policies(__name__, AlphaZeroPolicy, AlphaZeroTorchPolicy="torch", AlphaZeroTFPolicy="tf")
