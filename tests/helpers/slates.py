"""A small recommender's spaces and batches, and what SlateQ computes of them, slowly, in NumPy."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np

from rlframe.data.sample_batch import SampleBatch
from rlframe.models.preprocessors import get_preprocessor

#: Candidates, places of a slate, numbers of users and documents.
C, S, E = 4, 2, 3


def spaces(count=C, size=S, user=E, doc=E):
    """Returns the environment's observation and action spaces."""
    clicks = gym.spaces.Tuple([gym.spaces.Dict({"click": gym.spaces.Discrete(2)})] * size)
    docs = {str(place): gym.spaces.Box(-9, 9, (doc,), np.float32) for place in range(count)}
    seen = {"user": gym.spaces.Box(-9, 9, (user,), np.float32), "doc": gym.spaces.Dict(docs), "response": clicks}
    return gym.spaces.Dict(seen), gym.spaces.MultiDiscrete([count] * size)


def preprocessed(space):
    return get_preprocessor(space)(space).observation_space


SEEN, SLATES = spaces()
FLAT = preprocessed(SEEN)


def flatten(space, user, docs, clicked=None):
    """Returns one flat observation of a user, documents by place, and the place of the last slate that was clicked."""
    told = tuple({"click": int(place == clicked)} for place in range(len(space["response"].spaces)))
    shown = {str(place): np.asarray(doc, np.float32) for place, doc in enumerate(docs)}
    given = {"user": np.asarray(user, np.float32), "doc": shown, "response": told}
    return get_preprocessor(space)(space).transform(given)


def slate_batch(rows=12, seed=0, user=E, doc=E):
    """Returns postprocessed rows; `clicked [B]` has the places that were clicked, S for none."""
    rng, (space, _) = np.random.default_rng(seed), spaces(user=user, doc=doc)
    clicked = rng.integers(S + 1, size=rows)

    def observations(clicks):
        return np.stack([flatten(space, rng.normal(size=user), rng.normal(size=(C, doc)), click) for click in clicks])

    return SampleBatch(
        {
            "obs": observations(rng.integers(S + 1, size=rows)),
            "new_obs": observations(clicked),
            "actions": np.stack([rng.choice(C, S, replace=False) for _ in range(rows)]),
            "next_actions": np.stack([rng.choice(C, S, replace=False) for _ in range(rows)]),
            "rewards": rng.normal(size=rows).astype(np.float32),
            "discounts": rng.uniform(size=rows).astype(np.float32),
            "weights": rng.uniform(size=rows).astype(np.float32),
        }
    ), clicked


class Oracle:
    """SlateQ's numbers, a document and a slate at a time, in float64.

    Args:
        weights: Those of a policy with one hidden layer.
        target: Those that next values are computed with.
        user: Numbers of a user.
        doc: Numbers of a document.
    """

    def __init__(self, weights, target=None, user=E, doc=E):
        self.weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}
        self.target = self.weights if target is None else target
        self.user, self.doc = user, doc

    def parts(self, obs):
        """Returns user and documents of a flat observation: its parts are "doc", "response", "user"."""
        return obs[len(obs) - self.user :].astype(np.float64), obs[: C * self.doc].reshape(C, self.doc).astype(
            np.float64
        )

    def q(self, user, doc, weights):
        hidden = weights["q.hidden_0.weight"] @ np.concatenate([user, doc]) + weights["q.hidden_0.bias"]
        hidden = np.where(hidden > 0, hidden, 0.2 * hidden)
        return float((weights["q.output.weight"] @ hidden + weights["q.output.bias"])[0])

    def score(self, user, doc):
        if "beta" in self.weights:
            return float(np.exp(self.weights["beta"] * (user @ doc)))
        made = self.weights["choice.output.weight"] @ np.concatenate([user, doc]) + self.weights["choice.output.bias"]
        return float(np.exp(made[0]))

    def chances(self, obs, slate):
        """Returns the probability of each place of a slate, and of no click."""
        user, docs = self.parts(obs)
        scores = np.array([*(self.score(user, docs[i]) for i in slate), np.exp(self.weights["score_no_click"])])
        return scores / scores.sum()

    def values(self, obs, slate, weights):
        """Returns what a click on each place, and none, is worth."""
        user, docs = self.parts(obs)
        return np.array([self.q(user, doc, weights) for doc in [*(docs[i] for i in slate), np.zeros(self.doc)]])

    def slate_value(self, obs, slate, weights=None):
        return float(self.chances(obs, slate) @ self.values(obs, slate, self.weights if weights is None else weights))

    def slate_values(self, obs):
        return [self.slate_value(obs, slate) for slate in itertools.combinations(range(C), S)]

    def losses(self, batch, clicked, strategy):
        """Returns the losses of values and of choices."""
        values, choices = [], []
        for row in range(batch.count):
            obs, then, slate = batch["obs"][row], batch["new_obs"][row], batch["actions"][row]
            every = [self.slate_value(then, other, self.target) for other in itertools.combinations(range(C), S)]
            after = {"QL": max(every), "MYOP": 0.0, "SARSA": 0.0}[strategy]
            if strategy == "SARSA":
                following = batch["next_actions"][row]
                after = max(every) if following[0] < 0 else self.slate_value(then, following, self.target)
            wanted = batch["rewards"][row] + batch["discounts"][row] * after
            error = self.values(obs, slate, self.weights)[clicked[row]] - wanted
            values.append(batch["weights"][row] * error**2)
            choices.append(-np.log(self.chances(obs, slate)[clicked[row]]))
        return float(np.mean(values)), float(np.mean(choices))
