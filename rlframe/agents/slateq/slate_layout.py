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
    """What a recommender's spaces say.

    Observations are a Dict of "user", "doc" (a Dict of equal spaces, one for each candidate; keys that are all numbers
    are in the order of these) and "response" (a Tuple with a Dict for each place of the last slate, whose "click" is
    Discrete(2)). Actions are S places of candidates, MultiDiscrete([C] * S).

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
        UnsupportedSpaceException: If the spaces are others, or there are too many slates.
    """

    def __init__(self, obs_space: Any, action_space: Any) -> None:
        original = getattr(obs_space, "original_space", obs_space)
        parts = original.spaces if isinstance(original, gym.spaces.Dict) else {}
        docs, responses = parts.get("doc"), parts.get("response")
        if "user" not in parts or not isinstance(docs, gym.spaces.Dict) or not isinstance(responses, gym.spaces.Tuple):
            raise UnsupportedSpaceException(
                f'SlateQ: got the observation space {original}; wanted a Dict of "user", "doc" (a Dict of documents) and '
                '"response" (a Tuple of Dicts with "click"), as rlframe.examples.env.recommender_systems has them'
            )
        keys = list(docs.spaces)
        keys = sorted(keys, key=int) if all(str(key).isdigit() for key in keys) else sorted(keys)
        if len(set(map(str, docs.spaces.values()))) != 1:
            raise UnsupportedSpaceException(
                f"SlateQ: got documents of different spaces, {docs}; wanted one space for all, since they share a "
                "network: pad them in the environment"
            )
        self.count = len(keys)
        size = _places(self.count, action_space)
        clicks = [getattr(part, "spaces", {}).get("click") for part in responses.spaces]
        if clicks != [gym.spaces.Discrete(2)] * size:
            raise UnsupportedSpaceException(
                f'SlateQ: got {clicks or "nothing"} for the clicks in "response"; wanted {size} Dicts, one for each '
                'place of a slate, with a "click" of Discrete(2)'
            )
        where = obs_layout(original)
        self._user = _columns(where["user"])
        self._docs = [_columns(where["doc"][key]) for key in keys]
        self.user_size, self.doc_size = (part.stop - part.start for part in (self._user, self._docs[0]))
        # One-hot: the second number of a click is 1 where there was one.
        self._clicks = [_columns(response["click"]) for response in where["response"]]
        self.slates = np.array(list(itertools.combinations(range(self.count), size)), np.int64)
        self.members = np.zeros((self.count, len(self.slates)), np.float32)
        np.put_along_axis(self.members, self.slates.T, 1.0, axis=0)

    def pairs(self, flat: Any, concat: Callable[..., Any] = ops.concat) -> Any:
        """Returns the user beside each candidate, float `[B, C, E + D]`, of flat observations, tensor or array `[B, F]`."""
        docs = concat([flat[:, None, part] for part in self._docs], 1)
        return concat([concat([flat[:, None, self._user]] * self.count, 1), docs], 2)

    def clicks(self, flat: Any) -> Any:
        """Returns which places were clicked, ones and zeros `[B, S]`, of the observations `[B, F]` behind a slate."""
        return ops.concat([flat[:, part.stop - 1 : part.stop] for part in self._clicks], 1)


def _columns(part: Any) -> slice:
    """Returns which columns of flat observations are those of a part."""
    leaves = tree.flatten(part)
    return slice(leaves[0].start, leaves[-1].stop)


def _places(count: int, space: Any) -> int:
    """Returns S, of the action space for C candidates."""
    choices = [int(n) for n in np.ravel(space.nvec)] if isinstance(space, gym.spaces.MultiDiscrete) else []
    size = len(choices)
    if not choices or set(choices) != {count}:
        raise UnsupportedSpaceException(
            f"SlateQ: got the action space {space} for {count} candidates; wanted MultiDiscrete([{count}] * S), slates of "
            "S places (PPO acts in other spaces)"
        )
    if size > count:
        raise UnsupportedSpaceException(
            f"SlateQ: got slates of {size} places for {count} candidates; wanted at most {count}, for no candidate is on "
            "two: show more candidates, or fewer places"
        )
    if math.comb(count, size) * count > MOST_MEMBERS:
        raise UnsupportedSpaceException(
            f"SlateQ compares all slates: got {math.comb(count, size)} of {size} among {count} candidates; wanted at most "
            f"{MOST_MEMBERS // count}: show fewer candidates, or fewer places"
        )
    return size


class SlateCategorical(Categorical):
    """The choice of a slate, by the values `[B, N]` of all; what it gives and takes are slates, int64 `[B, S]`.

    Args:
        inputs: Values. Float `[B, N]`.
        rng: Generator that `sample` draws from.
        slates: All slates, ascending. int64 `[N, S]`.
    """

    def __init__(self, inputs: NDArray[Any], rng: np.random.Generator | None = None, *, slates: NDArray[Any]) -> None:
        super().__init__(inputs, rng)
        self.slates = slates

    def sample(self) -> NDArray[Any]:
        """Draws slates with probabilities softmax(values)."""
        self.last_sample = self.slates[super().sample()]
        return self.last_sample

    def deterministic_sample(self) -> NDArray[Any]:
        """Returns the best slates; the first one among equals."""
        self.last_sample = self.slates[super().deterministic_sample()]
        return self.last_sample

    def logp(self, x: Any) -> NDArray[Any]:
        """Returns log-likelihoods `[B]` of slates without repetition, in any order."""
        digits = (1 + self.slates.max()) ** np.arange(self.slates.shape[1])[::-1]
        return super().logp(np.searchsorted(self.slates @ digits, np.sort(np.asarray(x), axis=1) @ digits))


def explored_slates(choose: Any, slates: NDArray[Any], /, *, action_distribution: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Returns what an exploration among the numbers of slates gives, as slates `[B, S]`, and log-likelihoods `[B]`."""
    if isinstance(action_distribution, SlateCategorical):
        action_distribution = Categorical(action_distribution.inputs, action_distribution.rng)
    numbers, logp = choose(action_distribution=action_distribution, **kwargs)
    return slates[convert_to_numpy(numbers)], logp


class SlateActor:
    """Values slates in NumPy as `SlateQModel` does in a framework.

    Args:
        spec: `{"q": spec of an actor, "choice": such a spec or None, "layout": SlateLayout}`.
        weights: Float32 arrays by name, possibly views of a live model's memory.
        rng: For noisy layers, of which there are none.
    """

    def __init__(self, spec: Mapping[str, Any], weights: Any, rng: np.random.Generator | None = None) -> None:
        self.mean, self._layout, self._weights = self, spec["layout"], weights
        self._q, self._choice = (made and make_actor(made, weights, rng) for made in (spec["q"], spec["choice"]))

    def forward(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns values of the slates, float32 `[B, N]`, for flat observations `[B, F]`."""
        pairs = self._layout.pairs(np.asarray(obs, np.float32), np.concatenate)
        rows, size = pairs.reshape(-1, pairs.shape[2]), self._layout.user_size
        q = self._q.forward(rows).reshape(len(pairs), -1)
        if self._choice is None:
            logits = self._weights["beta"] * np.einsum("bce,bce->bc", pairs[..., :size], pairs[..., size:])
        else:
            logits = self._choice.forward(rows).reshape(len(pairs), -1)
        no_click = self._weights["score_no_click"]
        highest = np.maximum(logits.max(axis=1, keepdims=True), no_click)
        scores, members = np.exp(logits - highest), self._layout.members
        made: NDArray[np.float32] = ((scores * q) @ members) / (scores @ members + np.exp(no_click - highest))
        return made
