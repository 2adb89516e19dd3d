"""SlateQ: what slates are worth, the losses, and the policy; for both frameworks."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from rlframe.agents.families.td_errors import td_error_of
from rlframe.agents.slateq.slate_layout import SlateActor, SlateCategorical, SlateLayout, explored_slates
from rlframe.data.column_dict import trajectory_ends
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS
from rlframe.data.n_step import (
    LOSS_COLUMNS,
    SAMPLED_COLUMNS,
    postprocess_nstep_and_prio,
    with_discounts,
    with_discounts_and_weights,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean
from rlframe.models.catalog import ModelCatalog
from rlframe.models.modelv2 import OBS_FLAT
from rlframe.models.spec import Dense, Network, Part, Variable, dense_layers
from rlframe.policy.backends import lazy_policies
from rlframe.policy.inference import Columns, Inference, Outputs
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, LossOutput
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError
from rlframe.utils.spaces.old_gym import convert_space

if TYPE_CHECKING:
    from rlframe.agents.slateq.slateq import SlateQConfig

#: Column of the slates shown next, int64 `[B, S]`, -1 where none is known; with SARSA.
NEXT_ACTIONS = "next_actions"


def postprocess_slates(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds `discounts` = γ(1 − terminated), and `next_actions` where SARSA learns from them."""
    batch = postprocess_nstep_and_prio(policy, sample_batch, other_agent_batches, episode)
    if policy.config.slateq_strategy == "SARSA":
        following = np.roll(np.asarray(batch[ACTIONS], np.int64), -1, axis=0)
        following[trajectory_ends(batch)] = -1
        batch[NEXT_ACTIONS] = following
    return batch


postprocess_slates.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories


class SlateQModel:
    """Networks that value slates by what a user makes of each document alone.

        P(i | s, A) = exp l_i / (exp l_⊥ + Σ_{j ∈ A} exp l_j),     l_i = β u·d_i
        Q(s, A) = Σ_{i ∈ A ∪ ⊥} P(i | s, A) Q̄(s, i)

    ⊥ is no click, in Q̄ a document of zeros. Where users and documents have different widths, l_i = w·(u, d_i) + b.

    Source: Ie et al. 2019, "SlateQ: A Tractable Decomposition for Reinforcement Learning with Recommendation Sets".
    """

    get_initial_state: Any = staticmethod(list)  # none

    def forward(self: Any, input_dict: Any, state: Any = None, seq_lens: Any = None) -> tuple[Tensor, list[Any]]:
        """Returns the values of all slates, float `[B, N]`, and no states."""
        del state, seq_lens
        pairs = self.view.pairs(self.encode(input_dict[OBS_FLAT if OBS_FLAT in input_dict else OBS]))
        return slate_values(q_values(self, pairs), self.choice_logits(pairs), self.view.members), []

    def choice_logits(self: Any, pairs: Tensor) -> Tensor:
        """Returns l of each candidate and of no click: float `[B, C + 1]`, for pairs `[B, C + 1, E + D]`."""
        size, pairs = self.view.user_size, pairs[:, :-1]
        if "choice" in self.parts:
            logits = ops.reshape(self.choice(ops.flatten_sequences(pairs)), (-1, pairs.shape[1]))
        else:
            logits = self.beta * ops.sum(pairs[..., :size] * pairs[..., size:], 2)
        return ops.concat([logits, self.score_no_click * ops.ones_like(logits[:, :1])], 1)

    def actor_spec(self: Any) -> dict[str, Any]:
        """Returns what `SlateActor` acts by."""
        chains: dict[str, Any] = {"choice": None}
        for name in ("q", "choice") if "choice" in self.parts else ("q",):
            chains[name] = {"outputs": self.parts[name].prefixed(name), "values": None, "shared": 0}
        return {**chains, "layout": self.view}


def q_values(networks: Any, pairs: Tensor) -> Tensor:
    """Returns Q̄ of each candidate and of no click, float `[B, C + 1]`, by the online or the target networks."""
    return ops.reshape(networks.q(ops.flatten_sequences(pairs)), (-1, pairs.shape[1]))


def slate_values(q: Tensor, logits: Tensor, members: Any) -> Tensor:
    """Returns Q(s, A) of each slate, float `[B, N]`.

    Args:
        q: Q̄ of the candidates and of no click. Float `[B, C + 1]`.
        logits: l of these. Float `[B, C + 1]`.
        members: Which candidates are on each slate, ones and zeros. float32 array `[C, N]`.
    """
    scores, on = ops.exp(logits - ops.max(logits, axis=1)[:, None]), ops.tensor_like(members, q)
    weighted = scores * q
    return (weighted[:, :-1] @ on + weighted[:, -1:]) / (scores[:, :-1] @ on + scores[:, -1:])


def of_places(values: Tensor, on: Tensor) -> Tensor:
    """Returns numbers of places and no click, `[B, S + 1]`, of those of all, `[B, C + 1]`; on: one-hot, `[B, S, C]`."""
    return ops.concat([ops.sum(on * values[:, None, :-1], 2), values[:, -1:]], 1)


class RandomSlates(Inference):
    """Values slates at random, so that the best is any."""

    def run(self, columns: Columns, explore: bool) -> Outputs:
        """Returns uniform numbers, float32 `[B, N]`."""
        del explore
        shape = (len(columns[OBS]), len(self.policy.layout.slates))
        return self.policy._action_rng.random(shape, np.float32), None, []


class SlateQPolicy(LearningPolicy):
    """Shows the slate of the largest value; learns the values of documents, and what users click.

        QL:     y = r + γ(1 − d) max_A' Q⁻(s', A')      SARSA:  y = r + γ(1 − d) Q⁻(s', A')      MYOP:  y = r
        L_Q = mean (Q̄(s, i) − y)²,     L_P = mean −log P(i | s, A),     i ∈ A ∪ ⊥ what was clicked

    Q⁻ has the target network's Q̄ and the newest P. See `SlateQModel` for Q and P.

    Source: as of `SlateQModel`.
    """

    config: SlateQConfig
    defaults_from = "rlframe.agents.slateq.slateq:DEFAULT_CONFIG"
    acting_network = "q"
    target_networks = ("q",)
    train_columns = SAMPLED_COLUMNS
    build_actor = staticmethod(SlateActor)
    learn_columns = (*LOSS_COLUMNS, NEXT_ACTIONS)
    complete_columns, complete_batch = with_discounts, with_discounts_and_weights
    compute_td_error = td_error_of
    postprocess_trajectory = postprocess_slates

    def prepare(self) -> None:
        """Finds out what the spaces are made of; raises a ConfigError where observations are not flattened."""
        if self._obs_preprocessor is None:
            raise ConfigError(
                "_disable_preprocessor_api: got True; wanted False: SlateQ reads flat observations, so leave it out"
            )
        self.layout = SlateLayout(convert_space(self.observation_space), convert_space(self.action_space))
        self.observation_space = self._obs_preprocessor.observation_space  # programs may give the environment's own

    def networks(self) -> Mapping[str, Part]:
        """Returns the documents' values, and what users click."""
        layout, config = self.layout, self.config
        seen = {"user": layout.user_size, "doc": layout.doc_size}
        output = Dense("output", "linear", 1)
        even = layout.user_size == layout.doc_size
        choice: dict[str, Part] = {"beta": Variable(0.0)} if even else {"choice": Network(seen, (output,))}
        values = Network(seen, (*dense_layers(config.hiddens, "leaky_relu"), output))
        return {"q": values, **choice, "score_no_click": Variable(0.0)}

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns an Adam each for values and choices."""
        config, (values, *choices) = self.config, self.networks()
        return {
            "choice": AdamSpec(tuple(choices), config.lr_choice_model),
            "q": AdamSpec((values,), config.lr_q_model, config.adam_epsilon, config.grad_clip),
        }

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the networks as a `SlateQModel`, and the framework's choice among numbers of slates."""
        home, slates = importlib.import_module(f"rlframe.models.{self.framework}.networks"), len(self.layout.slates)
        made = type("SlateQModel", (SlateQModel, home.Networks), {})(
            self.observation_space, self.action_space, slates, self.config["model"], "SlateQModel",
            parts=self.networks(), acting=self.acting_network, view=self.layout,
        )  # fmt: skip
        self.check_model(made, slates)
        return made, ModelCatalog.get_action_dist(gym.spaces.Discrete(slates), framework=self.framework)[0]

    def _numpy_distribution(self) -> Any:
        super()._numpy_distribution()
        return partial(SlateCategorical, slates=self.layout.slates)

    def _create_exploration(self) -> Any:
        """Returns the exploration of the config, which explores among the numbers of slates."""
        own, self.action_space = self.action_space, gym.spaces.Discrete(len(self.layout.slates))
        try:
            made = super()._create_exploration()
        finally:
            self.action_space = own
        made.get_exploration_action = partial(explored_slates, made.get_exploration_action, self.layout.slates)
        return made

    def _built_in_inference(self) -> Inference:
        return RandomSlates(self) if self.config.slateq_strategy == "RANDOM" else super()._built_in_inference()

    def next_values(self, model: Any, batch: SampleBatch) -> Tensor:
        """Returns what the next slates are worth, float `[B]`, constants: the best, or with SARSA those shown."""
        following = batch.get(NEXT_ACTIONS) if self.config.slateq_strategy == "SARSA" else None

        def value(obs: Tensor) -> Tensor:
            pairs = self.layout.pairs(obs)
            q, logits = q_values(self.target_model, pairs), model.choice_logits(pairs)
            best = ops.max(slate_values(q, logits, self.layout.members), axis=1)
            if following is None:
                return best
            on = ops.one_hot(ops.maximum(following, ops.zeros_like(following)), self.layout.count)
            shown = ops.sum(ops.softmax(of_places(logits, on)) * of_places(q, on), 1)
            return ops.where(following[:, 0] >= 0, shown, best)  # behind a cut, the policy's own

        made: Tensor = ops.without_gradient(value, ops.to_float(batch[NEXT_OBS]))
        return made

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the losses of values and choices for one batch, TD errors `[B]` and statistics."""
        del dist_class
        batch, mean, pairs = train_batch, valid_mean(train_batch), self.layout.pairs(ops.to_float(train_batch[OBS]))
        on = ops.one_hot(batch[ACTIONS], self.layout.count)
        logits = of_places(model.choice_logits(pairs), on)
        clicks = self.layout.clicks(ops.to_float(batch[NEXT_OBS]))
        clicked = ops.argmax(ops.concat([clicks, 1.0 - ops.sum(clicks, 1)[:, None]], 1), axis=1)
        q = ops.batched_index(of_places(q_values(model, pairs), on), clicked)
        target, weights = batch[REWARDS], batch.get(WEIGHTS)
        if self.config.slateq_strategy in ("QL", "SARSA"):
            target = target + batch[DISCOUNTS] * self.next_values(model, batch)
        td_error = q - target
        squares = ops.square(td_error) if weights is None else weights * ops.square(td_error)
        losses = {"choice": mean(-ops.batched_index(ops.log_softmax(logits), clicked)), "q": mean(squares)}
        stats = {f"{name}_loss": loss for name, loss in losses.items()}
        stats |= {"mean_q": mean(q), "min_q": ops.min(q), "max_q": ops.max(q), "click_rate": mean(ops.sum(clicks, 1))}
        report = {name: ops.stop_gradient(value) for name, value in stats.items()}
        return LossOutput(losses, report, {"td_error": ops.stop_gradient(td_error)})


__getattr__ = lazy_policies(__name__, SlateQPolicy, SlateQTorchPolicy="torch", SlateQTFPolicy="tf")
