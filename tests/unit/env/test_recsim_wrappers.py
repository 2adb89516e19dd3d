"""RLlib's wrappers for environments like RecSim's, around environments of a program's own in either contract."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlframe.agents.bandit import BanditLinUCBTrainer
from rlframe.env.wrappers.recsim import (
    MultiDiscreteToDiscreteActionWrapper,
    RecSimObservationBanditWrapper,
    RecSimObservationSpaceWrapper,
    RecSimResetWrapper,
)
from rlframe.utils.errors import UnsupportedSpaceException


class Shop(gymnasium.Env):
    """Shows three documents, whose names change from step to step; the second is the one that pays."""

    def __init__(self, config=None):
        doc = spaces.Box(0, 1, (2,), np.float32)
        response = spaces.Dict(click=spaces.Discrete(2), seconds=spaces.Box(1, 9, (), np.float32))
        self.observation_space = spaces.Dict(
            user=doc, doc=spaces.Dict({str(key): doc for key in range(3)}), response=spaces.Tuple([response] * 2)
        )
        self.action_space = spaces.MultiDiscrete([3, 3])
        self.taken = []

    def shown(self):
        ids = (str(100 * len(self.taken) + place) for place in range(3))
        docs = dict(zip(ids, np.eye(3, 2, k=-1, dtype=np.float32), strict=True))
        return {"user": np.zeros(2, np.float32), "doc": docs}

    def reset(self, *, seed=None, options=None):
        return {**self.shown(), "response": None}, {}

    def step(self, action):
        self.taken.append(list(action))
        told = tuple({"click": int(place == 1), "seconds": np.array(2, np.float32)} for place in action)
        return {**self.shown(), "response": told}, float(1 in list(action)), len(self.taken) % 5 == 0, False, {}

    def close(self):
        raise NotImplementedError


class OldShop:
    """The same in the contract of the old gym."""

    def __init__(self, config=None):
        self.shop = Shop()
        self.observation_space, self.action_space = self.shop.observation_space, self.shop.action_space

    def reset(self):
        return self.shop.reset()[0]

    def step(self, action):
        obs, reward, terminated, _, info = self.shop.step(action)
        return obs, reward, terminated, info


def test_documents_are_named_by_place_and_the_first_response_is_of_nothing_clicked():
    env = RecSimObservationSpaceWrapper(RecSimResetWrapper(Shop()))
    first, _ = env.reset(seed=1)
    assert first["response"] == ({"click": 0, "seconds": 1.0},) * 2
    then, *_ = env.step([1, 2])
    assert list(then["doc"]) == ["0", "1", "2"]
    assert then["response"][0] == {"click": 1, "seconds": 2.0}
    assert first in env.observation_space
    assert then in env.observation_space
    env.close()


def test_numbers_of_slates_are_places_and_bandits_see_features_alone():
    shop = Shop()
    env = RecSimObservationBanditWrapper(MultiDiscreteToDiscreteActionWrapper(shop))
    assert env.action_space.n == 9
    seen, _ = env.reset()
    np.testing.assert_array_equal(seen["item"], [[0, 0], [1, 0], [0, 1]])
    assert seen in env.observation_space
    env.step(np.int64(5))
    assert shop.taken == [[2, 1]]


def test_environments_of_the_old_gym_keep_their_contract_and_bandits_learn_from_them():
    env = RecSimObservationBanditWrapper(MultiDiscreteToDiscreteActionWrapper(OldShop()))
    assert list(env.reset()) == ["item"]
    assert len(env.step(0)) == 4

    def creator(config):
        shop = OldShop(config)
        shop.action_space = spaces.MultiDiscrete([3])
        return RecSimObservationBanditWrapper(MultiDiscreteToDiscreteActionWrapper(shop))

    trainer = BanditLinUCBTrainer({"timesteps_per_iteration": 60, "env": creator})
    assert trainer.train()["episode_reward_max"] == 5
    trainer.stop()


@pytest.mark.parametrize("wrapper", [RecSimObservationBanditWrapper, MultiDiscreteToDiscreteActionWrapper])
def test_other_spaces_are_refused(wrapper):
    with pytest.raises(UnsupportedSpaceException, match="wanted"):
        wrapper(gymnasium.make("CartPole-v1"))
