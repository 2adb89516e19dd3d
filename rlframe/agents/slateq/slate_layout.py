"""All slates of some candidates, where observations have these, and how one slate is chosen, in NumPy.

B rows, C candidates, S places of a slate, N slates, E numbers of a user, D of a document.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.models.distributions import Categorical
from rlframe.models.obs_layout import obs_layout
from rlframe.models.recurrent_actor import make_actor
from rlframe.tensor import ops
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.numpy import convert_to_numpy

#: Largest N · C: all slates are compared, by a matrix of that many numbers.
MOST_MEMBERS = 2**26


class SlateLayout:
    """What a recommender's spaces say; keys of documents that are all numbers are in the order of these.

    Args:
        obs_space: The environment's, or what is preprocessed of it, with `original_space`.
        action_space: The environment's.

    Attributes:
        count: C.
        user_size: E.
        doc_size: D.
        slates: Each set of S candidates once, ascending. int64 `[N, S]`.
        members: Which candidates are on each slate, ones and zeros. float32 `[C, N]`.

    Raises:
        UnsupportedSpaceException: If the spaces are not a recommender's, or there are too many slates.
    """

    def __init__(self, obs_space: Any, action_space: Any) -> None:
        original = getattr(obs_space, "original_space", obs_space)
        parts: Any = original.spaces if isinstance(original, gym.spaces.Dict) else {}
        user, docs, responses = (parts.get(key) for key in ("user", "doc", "response"))
        shown = list(docs.spaces.values()) if isinstance(docs, gym.spaces.Dict) else []
        told = responses.spaces if isinstance(responses, gym.spaces.Tuple) else []
        clicks = [getattr(place, "spaces", {}).get("click") for place in told]
        if user is None or not shown or shown != shown[:1] * len(shown) or set(map(str, clicks)) != {"Discrete(2)"}:
            raise UnsupportedSpaceException(
                f'SlateQ: got the observation space {original}; wanted a Dict of "user", "doc" (a Dict with the same '
                'space for each candidate) and "response" (a Tuple with a Dict for each place of a slate, whose '
                '"click" is Discrete(2)): write them so, as rlframe.examples.env.recommender_systems does'
            )
        places = np.ravel(getattr(action_space, "nvec", []))
        self.count, size = len(shown), len(places)
        if not isinstance(action_space, gym.spaces.MultiDiscrete) or set(places) != {self.count} or size != len(told):
            raise UnsupportedSpaceException(
                f"SlateQ: got the action space {action_space} for {self.count} candidates and {len(told)} responses; "
                f"wanted MultiDiscrete([{self.count}] * {len(told)}); PPO and SAC act in other spaces"
            )
        slates = math.comb(self.count, size)
        if not 0 < slates * self.count <= MOST_MEMBERS:
            raise UnsupportedSpaceException(
                f"SlateQ compares all slates: got {size} places for {self.count} candidates, {slates} slates in all; "
                f"wanted 1 to {MOST_MEMBERS // self.count}, of at most {self.count} places: show fewer at once"
            )
        where, keys = obs_layout(original), list(parts["doc"].spaces)
        keys.sort(key=int if all(str(key).isdigit() for key in keys) else None)
        self._user, *self._docs = (_columns(part) for part in (where["user"], *(where["doc"][key] for key in keys)))
        # One-hot: the second number of a click is 1 where there was one.
        self._clicks = [_columns(response["click"]) for response in where["response"]]
        self.user_size, self.doc_size = (part.stop - part.start for part in (self._user, self._docs[0]))
        self.slates = np.array(list(itertools.combinations(range(self.count), size)), np.int64)
        self.members = np.zeros((self.count, slates), np.float32)
        np.put_along_axis(self.members, self.slates.T, 1.0, axis=0)

    def pairs(self, flat: Any, concat: Callable[..., Any] = ops.concat) -> Any:
        """Returns the user beside each candidate and, for no click, a document of zeros, of tensors or arrays `[B, F]`.

        Float `[B, C + 1, E + D]`.
        """
        docs = [flat[:, None, part] for part in self._docs]
        users = [flat[:, None, self._user]] * (self.count + 1)
        return concat([concat(users, 1), concat([*docs, 0.0 * docs[0]], 1)], 2)

    def clicks(self, flat: Any) -> Any:
        """Returns which places were clicked, ones and zeros `[B, S]`, of the observations `[B, F]` behind a slate."""
        return ops.concat([flat[:, part.stop - 1 : part.stop] for part in self._clicks], 1)


def _columns(part: Any) -> slice:
    """Returns which columns of flat observations are those of a part."""
    leaves = tree.flatten(part)
    return slice(leaves[0].start, leaves[-1].stop)


class SlateCategorical(Categorical):
    """The choice of a slate, by the values `[B, N]` of all; what it gives and takes are slates, int64 `[B, S]`.

    Args:
        inputs: Values. Float `[B, N]`.
        rng: Generator that `sample` draws from, with probabilities softmax(values).
        slates: All slates, ascending. int64 `[N, S]`.
    """

    def __init__(self, inputs: NDArray[Any], rng: np.random.Generator | None = None, *, slates: NDArray[Any]) -> None:
        super().__init__(inputs, rng)
        self.slates = slates

    def sample(self) -> Any:
        """Draws slates."""
        self.last_sample = self.slates[super().sample()]
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Returns the best slates; the first one among equals."""
        self.last_sample = self.slates[super().deterministic_sample()]
        return self.last_sample

    def logp(self, x: Any) -> NDArray[Any]:
        """Returns log-likelihoods `[B]` of slates without repetition, in any order."""
        digits = (1 + self.slates.max()) ** np.arange(self.slates.shape[1])[::-1]
        return super().logp(np.searchsorted(self.slates @ digits, np.sort(np.asarray(x), axis=1) @ digits))


def explored_slates(choose: Any, slates: Any, /, *, action_distribution: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Returns what an exploration among the numbers of slates gives, as slates `[B, S]`, and log-likelihoods `[B]`."""
    if isinstance(action_distribution, SlateCategorical):
        action_distribution = Categorical(action_distribution.inputs, action_distribution.rng)
    numbers, logp = choose(action_distribution=action_distribution, **kwargs)
    return slates[convert_to_numpy(numbers)], logp


class SlateActor:
    """Values slates in NumPy as `SlateQModel` does in a framework; made as other actors are, of its `actor_spec`."""

    def __init__(self, spec: Mapping[str, Any], weights: Any, rng: np.random.Generator | None = None) -> None:
        self.mean, self._layout, self._weights = self, spec["layout"], weights
        self._q, self._choice = (made and make_actor(made, weights, rng) for made in (spec["q"], spec["choice"]))

    def forward(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns values of the slates, float32 `[B, N]`, for flat observations `[B, F]`."""
        pairs = self._layout.pairs(np.asarray(obs, np.float32), np.concatenate)
        size, rows = self._layout.user_size, pairs.reshape(-1, pairs.shape[2])
        q = self._q.forward(rows).reshape(len(pairs), -1)
        if self._choice is None:
            logits = self._weights["beta"] * np.einsum("bce,bce->bc", pairs[..., :size], pairs[..., size:])
        else:
            logits = self._choice.forward(rows).reshape(len(pairs), -1)
        logits[:, -1] = self._weights["score_no_click"]
        scores, members = np.exp(logits - logits.max(axis=1, keepdims=True)), self._layout.members
        summed, others = scores[:, :-1] @ members, scores[:, -1:]
        made: NDArray[np.float32] = ((scores * q)[:, :-1] @ members + others * q[:, -1:]) / (summed + others)
        return made
