"""RLlib's wrappers for environments that show documents as RecSim's do, around a program's own recommender systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlframe.env.wrappers.any_contract import AnyContract
from rlframe.utils.errors import UnsupportedSpaceException


class RecSimObservationSpaceWrapper(AnyContract, gymnasium.ObservationWrapper[Any, Any, Any]):
    """Names documents by their places, "0", "1", ..., where the environment names them by ids that change.

    Args:
        env: Its observations are dicts "user", "doc" (by document) and "response".

    Raises:
        UnsupportedSpaceException: If they are not.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        docs = _document_spaces(self)
        space: Any = self.env.observation_space
        self.observation_space = spaces.Dict({**space.spaces, "doc": spaces.Dict(_by_place(docs))})

    def observation(self, observation: Any) -> dict[str, Any]:
        """Returns the observation with documents by place."""
        return {**observation, "doc": _by_place(observation["doc"])}


class RecSimObservationBanditWrapper(AnyContract, gymnasium.ObservationWrapper[Any, Any, Any]):
    """Shows the documents' features alone, as bandits take them: "item", float `[C, D]` for C candidates.

    Args:
        env: Its observations are dicts whose "doc" has a vector for each document.

    Raises:
        UnsupportedSpaceException: If they are not.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        docs = list(_document_spaces(self).values())
        if not all(isinstance(doc, spaces.Box) and doc.shape == docs[0].shape for doc in docs):
            raise UnsupportedSpaceException(
                f"{type(self).__name__}: got documents of {docs[0]}; wanted vectors of one length"
            )
        low, high = (np.stack([np.atleast_1d(getattr(doc, name)) for doc in docs]) for name in ("low", "high"))
        self.observation_space = spaces.Dict(item=spaces.Box(low, high, dtype=np.float32))

    def observation(self, observation: Any) -> dict[str, Any]:
        """Returns the features of all documents."""
        return {"item": np.vstack(list(observation["doc"].values())).astype(np.float32)}


class RecSimResetWrapper(AnyContract, gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives first observations a "response", which RecSim's lack: that of nothing clicked. Closing does nothing."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        observation, info = self.env.reset(**kwargs)
        response: Any = self.env.observation_space
        return {**observation, "response": _nothing(response["response"])}, info

    def close(self) -> None:
        """Does nothing: RecSim's environments cannot be closed."""


class MultiDiscreteToDiscreteActionWrapper(AnyContract, gymnasium.ActionWrapper[Any, Any, Any]):
    """Numbers slates, the first place counting single, for algorithms that choose one of N.

    Args:
        env: Its actions are MultiDiscrete.

    Raises:
        UnsupportedSpaceException: If they are not.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = self.env.action_space
        if not isinstance(space, spaces.MultiDiscrete):
            raise UnsupportedSpaceException(f"{type(self).__name__}: got the actions {space}, wanted MultiDiscrete")
        self.action_space_dimensions = space.nvec
        self.action_space = spaces.Discrete(int(np.prod(space.nvec)))

    def action(self, action: Any) -> list[int]:
        """Returns the places of a slate of that number."""
        places, rest = [], int(action)
        for count in self.action_space_dimensions:
            rest, place = divmod(rest, int(count))
            places.append(place)
        return places


def _document_spaces(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> Mapping[str, Any]:
    space = wrapper.env.observation_space
    docs = space.spaces.get("doc") if isinstance(space, spaces.Dict) else None
    if not isinstance(docs, spaces.Dict):
        raise UnsupportedSpaceException(
            f"{type(wrapper).__name__}: got observations of {space}, wanted a Dict whose 'doc' is a Dict of documents"
        )
    return docs.spaces


def _by_place(docs: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(place): doc for place, doc in enumerate(docs.values())}


def _nothing(space: Any) -> Any:
    """Returns a response in which nothing was clicked: zeros, as near as the space comes to them."""
    if isinstance(space, spaces.Dict):
        return {key: _nothing(each) for key, each in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nothing(each) for each in space.spaces)
    if isinstance(space, spaces.Box):
        return np.asarray(np.clip(np.zeros(space.shape, space.dtype), space.low, space.high))
    return int(getattr(space, "start", 0))
