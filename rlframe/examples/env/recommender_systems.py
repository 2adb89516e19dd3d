"""Users to whom slates of documents are recommended, with the dynamics of RecSim's simulations, in NumPy.

Source: Ie et al. 2019, "RecSim: A Configurable Simulation Platform for Recommender Systems"; Ie et al. 2019, "SlateQ",
section 6.1; what these leave open is as in RecSim's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from numpy.typing import NDArray

from rlframe.env.registry import register_env
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import make_rng

Array = NDArray[np.float64]


class _RecommenderEnv(gymnasium.Env[Any, Any]):
    """Shows a user and candidates; takes a slate, the places of some candidates; tells what the user did with them.

    Observations are dicts: "user", "doc" with a part for each candidate, "0", "1", ..., and "response" with a dict for
    each place of the last slate, whose "click" is 1 where the user chose it; none is clicked behind a reset.

    Args:
        config: `num_candidates` (10), `slate_size` (2), `resample_documents` (True: other candidates in each step),
            `seed` (0: what is drawn once, and resets without a seed), `convert_to_discrete_action_space` (False; True
            numbers the slates, the first place counting single), `wrap_for_bandits` (False; True shows "item" alone,
            the candidates' features `[C, D]`).

    Raises:
        ConfigError: If it has other keys, or a slate is larger than what there is to choose from.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "num_candidates": 10, "slate_size": 2, "resample_documents": True, "seed": 0,
        "convert_to_discrete_action_space": False, "wrap_for_bandits": False,
    }  # fmt: skip
    #: What a user shows, what a document shows, and what is told of a place of the slate beside "click".
    user_space: ClassVar[Any]
    doc_space: ClassVar[Any]
    response_spaces: ClassVar[Mapping[str, Any]]

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        given, name = dict(config or {}), type(self).__name__
        unknown = sorted(set(given) - set(self.defaults))
        if unknown:
            raise ConfigError(f"{name}: got the keys {unknown}, wanted some of {sorted(self.defaults)}")
        self.config: dict[str, Any] = {**self.defaults, **given}
        count, size = int(self.config["num_candidates"]), int(self.config["slate_size"])
        if not 1 <= size <= count:
            raise ConfigError(
                f"{name}: got slate_size={size} with num_candidates={count}; wanted 1 to {count} places on a slate"
            )
        response = Dict({"click": Discrete(2), **self.response_spaces})
        self._count, self._size = count, size
        self.observation_space = Dict(
            user=self.user_space,
            doc=Dict({str(place): self.doc_space for place in range(count)}),
            response=Tuple([response] * size),
        )
        if self.config["wrap_for_bandits"]:
            if not isinstance(self.doc_space, Box):
                raise ConfigError(f"{name}: got wrap_for_bandits=True with documents of {self.doc_space}; set False")
            self.observation_space = Dict(item=Box(-1.0, 1.0, (count, self.doc_space.shape[0]), np.float32))
        by_number = self.config["convert_to_discrete_action_space"]
        self.action_space: Any = Discrete(count**size) if by_number else MultiDiscrete([count] * size)
        rng = make_rng(int(self.config["seed"]), "documents")
        self._begun, self._docs = False, [self._document(rng) for _ in range(count)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins with a user and candidates."""
        super().reset(seed=int(self.config["seed"]) if seed is None and not self._begun else seed, options=options)
        self._begun = True
        self._meet_user()
        return self._seen([self._told(None, {})] * self._size), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Shows a slate to the user: places of candidates, `[S]`, or its number."""
        if isinstance(self.action_space, Discrete):
            action = int(action) // self._count ** np.arange(self._size) % self._count
        slate = [self._docs[int(place)] for place in action]
        clicked = self._choose(slate)
        reward, response = (0.0, {}) if clicked is None else self._respond(slate[clicked])
        told = [self._told(doc, response if place == clicked else None) for place, doc in enumerate(slate)]
        return self._seen(told), reward, self._is_through(), False, {}

    def _seen(self, responses: list[dict[str, Any]]) -> Any:
        if self.config["resample_documents"]:
            self._docs = [self._document(self.np_random) for _ in range(self._count)]
        shown = {str(place): self._doc_seen(doc) for place, doc in enumerate(self._docs)}
        if self.config["wrap_for_bandits"]:
            return {"item": np.stack(list(shown.values()))}
        return {"user": self._user_seen(), "doc": shown, "response": tuple(responses)}

    def _told(self, doc: Any, response: Mapping[str, Any] | None) -> dict[str, Any]:
        """Returns what is told of a place, with `response` where it was clicked; of no document, zeros."""
        found = {**self._features(doc), **(response or {})} if doc is not None else {}
        told: dict[str, Any] = {"click": int(doc is not None and response is not None)}
        for key, space in self.response_spaces.items():
            value = found.get(key, 0)
            told[key] = int(value) if isinstance(space, Discrete) else np.array(value, np.float32)
        return told

    def _drawn(self, weights: Any) -> int | None:
        """Returns a place drawn by weights, the last of which is that of no click."""
        bounds = np.cumsum(weights)
        place = int(np.searchsorted(bounds, self.np_random.random() * bounds[-1], "right"))
        return place if place < len(bounds) - 1 else None

    # --- what each simulation says ----------------------------------------------------------------------------

    def _meet_user(self) -> None:
        """Draws a user."""
        raise NotImplementedError

    def _document(self, rng: np.random.Generator) -> Any:
        """Returns a document."""
        raise NotImplementedError

    def _user_seen(self) -> Any:
        """Returns what the user shows; here nothing."""
        return np.zeros(0, np.float32)

    def _doc_seen(self, doc: Any) -> Any:
        """Returns what a document shows."""
        raise NotImplementedError

    def _features(self, doc: Any) -> dict[str, Any]:
        """Returns what is told of a document on the slate, clicked or not."""
        del doc
        return {}

    def _choose(self, slate: list[Any]) -> int | None:
        """Returns the place that the user clicks, None for none."""
        raise NotImplementedError

    def _respond(self, doc: Any) -> tuple[float, dict[str, Any]]:
        """Returns the reward of a clicked document, and what is told of it; moves the user on."""
        raise NotImplementedError

    def _is_through(self) -> bool:
        """Returns whether the user leaves."""
        raise NotImplementedError


class InterestEvolutionRecSimEnv(_RecommenderEnv):
    """Videos of 20 topics: what one is interested in is often bad, and what is good for one buys time for more.

    A user's interests u, uniform in [-1, 1], are shown; a video of a topic d is clicked in proportion to u_d + 1, none
    in proportion to 2. A click pays the 4 minutes it is watched, costs the user's budget of 200 minutes as many, and
    gives back 0.9/3.4 of these times the video's quality: N(mean, 0.1), means from -3 to 0 over the first 14 topics,
    from 0 to 3 over the others. No click costs half a minute. Behind a click u_d moves by 0.3 (1 - |u_d|)(1 - u_d),
    up with probability (u_d + 1)/2, else down. The episode ends with the budget.
    """

    TOPICS: ClassVar[int] = 20
    MEAN_QUALITY: ClassVar[Array] = np.concatenate([np.linspace(-3.0, 0.0, 14), np.linspace(0.0, 3.0, 6)])

    user_space = doc_space = Box(-1.0, 1.0, (TOPICS,), np.float32)
    response_spaces: ClassVar[Any] = {
        "watch_time": Box(0.0, 100.0, (), np.float32),
        "liked": Discrete(2),
        "quality": Box(-100.0, 100.0, (), np.float32),
        "cluster_id": Discrete(TOPICS),
    }

    def _meet_user(self) -> None:
        self._interests, self._budget = self.np_random.uniform(-1.0, 1.0, self.TOPICS), 200.0

    def _document(self, rng: np.random.Generator) -> tuple[int, float]:
        topic = int(rng.integers(self.TOPICS))
        return topic, float(rng.normal(self.MEAN_QUALITY[topic], 0.1))

    def _user_seen(self) -> Any:
        return self._interests.astype(np.float32)

    def _doc_seen(self, doc: Any) -> Any:
        return np.eye(self.TOPICS, dtype=np.float32)[doc[0]]

    def _features(self, doc: Any) -> dict[str, Any]:
        return {"quality": doc[1], "cluster_id": doc[0]}

    def _choose(self, slate: list[Any]) -> int | None:
        clicked = self._drawn([*(self._interests[topic] + 1.0 for topic, _ in slate), 2.0])
        if clicked is None:
            self._budget -= 0.5
        return clicked

    def _respond(self, doc: Any) -> tuple[float, dict[str, Any]]:
        topic, quality = doc
        watched, interest = min(self._budget, 4.0), self._interests[topic]
        step = 0.3 * (1.0 - abs(interest)) * (1.0 - interest)
        up = self.np_random.random() < (interest + 1.0) / 2.0
        self._interests[topic] = np.clip(interest + (step if up else -step), -1.0, 1.0)
        self._budget += watched * (0.9 / 3.4 * quality - 1.0)
        return watched, {"watch_time": watched}

    def _is_through(self) -> bool:
        return self._budget <= 0.0


class LongTermSatisfactionRecSimEnv(_RecommenderEnv):
    """Chocolate or kale: what pays now makes the user less satisfied, and that, which is hidden, is what pays later.

    A document's clickbait score c, uniform in [0, 1], is all that is shown. The user clicks the first of the slate, 60
    times. It pays exp N((5 c + 4 (1 - c)) s, 1), with the satisfaction s = sigmoid(0.01 x), where the exposure x
    begins uniform in ±5/3 and becomes 0.7 x - 2 (c - 1/2) + N(0, 0.05).
    """

    user_space: ClassVar[Any] = Box(0.0, np.inf, (0,), np.float32)
    doc_space: ClassVar[Any] = Box(0.0, 1.0, (1,), np.float32)
    response_spaces: ClassVar[Any] = {"engagement": Box(0.0, 100.0, (), np.float32)}

    def _meet_user(self) -> None:
        self._exposure, self._left = (self.np_random.random() - 0.5) / (1.0 - 0.7), 60

    def _document(self, rng: np.random.Generator) -> float:
        return float(rng.random())

    def _doc_seen(self, doc: Any) -> Any:
        return np.array([doc], np.float32)

    def _choose(self, slate: list[Any]) -> int | None:
        del slate
        return 0

    def _respond(self, doc: Any) -> tuple[float, dict[str, Any]]:
        satisfaction = 1.0 / (1.0 + np.exp(-0.01 * self._exposure))
        engagement = float(np.exp(self.np_random.normal((5.0 * doc + 4.0 * (1.0 - doc)) * satisfaction, 1.0)))
        self._exposure = 0.7 * self._exposure - 2.0 * (doc - 0.5) + self.np_random.normal(0.0, 0.05)
        self._left -= 1
        return engagement, {"engagement": min(engagement, 100.0)}

    def _is_through(self) -> bool:
        return self._left <= 0


class InterestExplorationRecSimEnv(_RecommenderEnv):
    """Two topics and two kinds of users, whose tastes are hidden: what is made better is not what each likes most.

    Documents are of topic 0 with probability 0.2, else 1; their qualities are lognormal(0.8, 0.1) or lognormal(0.2,
    0.1). A user is of kind 0 with probability 0.3, and has hidden affinities lognormal(m, 0.1), with m = (0.1, 0.7) for
    the topics, or (0.7, 0.1) for kind 1. A click pays 1; a document is clicked in proportion to exp(affinity +
    quality), none in proportion to exp(5). Users never leave: set `horizon`.
    """

    user_space: ClassVar[Any] = Box(0.0, np.inf, (0,), np.float32)
    _seen_of_documents: ClassVar[Any] = {"quality": Box(0.0, np.inf, (), np.float32), "cluster_id": Discrete(2)}
    doc_space: ClassVar[Any] = Dict(_seen_of_documents)
    response_spaces: ClassVar[Any] = _seen_of_documents

    def _meet_user(self) -> None:
        kind = int(self.np_random.random() >= 0.3)
        self._affinities = self.np_random.lognormal([0.1, 0.7] if kind == 0 else [0.7, 0.1], 0.1)

    def _document(self, rng: np.random.Generator) -> tuple[int, float]:
        topic = int(rng.random() >= 0.2)
        return topic, float(rng.lognormal((0.8, 0.2)[topic], 0.1))

    def _doc_seen(self, doc: Any) -> Any:
        return {"quality": np.array(doc[1], np.float32), "cluster_id": doc[0]}

    _features = _doc_seen

    def _choose(self, slate: list[Any]) -> int | None:
        return self._drawn(np.exp([*(self._affinities[topic] + quality for topic, quality in slate), 5.0]))

    def _respond(self, doc: Any) -> tuple[float, dict[str, Any]]:
        del doc
        return 1.0, {}

    def _is_through(self) -> bool:
        return False


#: Name under which RLlib registered interest evolution.
env_name = "RecSim-v1"
register_env(env_name, InterestEvolutionRecSimEnv)
