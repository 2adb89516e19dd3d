"""`VectorEnv`s and `BaseEnv`s of users' own, as RLlib 1.x had them: what workers make of their copies."""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.pg import PGTrainer
from rlframe.env import BaseEnv, VectorEnv
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import EnvError

gym = pytest.importorskip("gym")

NUMBER = gym.spaces.Box(0.0, 1e6, (1,), np.float32)
COPIES, LENGTH = 3, 2


class Counters(VectorEnv):
    """Copies that count: copy i begins its k-th episode at 100 * i + 10 * k; episodes have two steps."""

    #: The step at which the next one made fails, once.
    fails_at = None

    def __init__(self, config=None):
        super().__init__(NUMBER, gym.spaces.Discrete(2), COPIES)
        self.calls, self.episodes = [], [-1] * COPIES
        self.at = np.zeros(COPIES)
        self.fails = Counters.fails_at
        Counters.fails_at = None

    def vector_reset(self):
        self.calls.append("vector_reset")
        return [self._begin(index) for index in range(COPIES)]

    def reset_at(self, index=None):
        self.calls.append(f"reset_at {index}")
        return self._begin(index)

    def _begin(self, index):
        self.episodes[index] += 1
        self.at[index] = 100 * index + 10 * self.episodes[index]
        return np.array([self.at[index]], np.float32)

    def vector_step(self, actions):
        assert len(actions) == COPIES
        assert all(action in self.action_space for action in actions)
        self.calls.append("vector_step")
        if self.fails is not None and self.calls.count("vector_step") == self.fails:
            raise RuntimeError("the simulator is gone")
        self.at += 1
        dones = [bool(self.at[index] % 10 == LENGTH) for index in range(COPIES)]
        return [np.array([at], np.float32) for at in self.at], self.at.tolist(), dones, [{"at": at} for at in self.at]


class Watching(DefaultCallbacks):
    """Keeps what it saw."""

    seen: ClassVar[list] = []

    def on_episode_end(self, *, worker, base_env, episode, **kwargs):
        assert base_env.vector_env is worker.env
        assert base_env.get_unwrapped() == []
        self.seen.append((episode.last_info_for()["at"], episode.total_reward))


def make(env, **config):
    settings = {
        "num_workers": 0, "seed": 1, "min_iter_time_s": 0, "log_sys_usage": False, "model": {"fcnet_hiddens": [4]},
        "rollout_fragment_length": 4, "train_batch_size": 4, **config,
    }  # fmt: skip
    return PGTrainer(settings, env=env)


@pytest.mark.parametrize("several", [False, True], ids=["one policy", "a table of policies"])
def test_copies_of_a_vector_env_are_stepped_together(several, monkeypatch):
    monkeypatch.setattr(Watching, "seen", [])
    table = {"policies": {"p": (None, NUMBER, gym.spaces.Discrete(2), {})}, "policy_mapping_fn": lambda agent: "p"}
    trainer = make(Counters, callbacks=Watching, **({"multiagent": table} if several else {}))
    worker = trainer.workers.local_worker()
    batch = worker.sample()
    batch = batch.policy_batches["p"] if several else batch
    assert batch.count == 4 * COPIES
    by_episode = {}
    for episode, obs, reward in zip(batch["eps_id"], batch["obs"], batch["rewards"], strict=True):
        assert reward == obs[0] + 1
        by_episode.setdefault(episode, []).append(obs[0])
    begins = sorted(rows[0] for rows in by_episode.values())
    first = 10 if worker.env.calls.count("reset_at 0") > 2 or not several else 0
    assert begins == [first, first + 10, 100, 110, 200, 210]
    assert all(rows == [rows[0], rows[0] + 1] for rows in by_episode.values())
    assert worker.env.calls.count("vector_step") == 4
    assert worker.env.calls.count("vector_reset") == 1
    assert len(Watching.seen) == 6
    assert worker.foreach_env(lambda env: env) == [worker.env]
    trainer.stop()


@pytest.mark.parametrize("recreate", [False, True])
def test_failed_vector_env_begins_anew(recreate, monkeypatch):
    monkeypatch.setattr(Counters, "fails_at", 3)
    worker = make(Counters, recreate_failed_workers=recreate).workers.local_worker()
    before = worker.env
    with pytest.raises(EnvError, match=r"vector_step\(\) of the environment .* raised RuntimeError: the simulator"):
        worker.sample()
    batch = worker.sample()
    assert batch.count == 4 * COPIES
    assert (batch["rewards"] == batch["obs"][:, 0] + 1).all()
    assert (worker.env is before) == (not recreate)
    assert worker.env.calls.count("vector_reset") == (1 if recreate else 2)


@pytest.mark.parametrize(
    ("method", "result", "message"),
    [("vector_step", ([0],), "returned tuple; wanted"), ("vector_step", ([0], [0], [0], [{}]), "1 observations"),
     ("vector_reset", [0], "1 observations")],
)  # fmt: skip
def test_wrong_answers_of_a_vector_env_are_named(method, result, message, monkeypatch):
    monkeypatch.setattr(Counters, method, lambda *args: result)
    with pytest.raises(EnvError, match=message):
        make(Counters).workers.local_worker().sample()


class Polled(BaseEnv):
    """Two environments with agents "a" and "b"; each observes the number of its step; episodes have three steps."""

    def __init__(self, config=None):
        self.steps, self.sent, self.off_policy = {7: 0, 8: 0}, [], dict(config or {}).get("off_policy")
        self.stopped = 0

    def _obs(self, env_id):
        return {agent: np.array([self.steps[env_id]], np.float32) for agent in "ab"}

    def poll(self):
        rewards = {env_id: {"a": float(step), "b": -1.0} for env_id, step in self.steps.items()}
        dones = {env_id: {"__all__": step == 3} for env_id, step in self.steps.items()}
        infos = {env_id: {"a": {}, "b": {}} for env_id in self.steps}
        taken = {env_id: {"a": 1, "b": 1} for env_id in self.steps} if self.off_policy else {}
        return {env_id: self._obs(env_id) for env_id in self.steps}, rewards, dones, infos, taken

    def send_actions(self, action_dict):
        assert set(action_dict) == {7, 8}
        for env_id, actions in action_dict.items():
            assert set(actions) == {"a", "b"}
            self.steps[env_id] += 1
        self.sent.append(action_dict)

    def try_reset(self, env_id=None):
        self.steps[env_id] = 0
        return self._obs(env_id)

    def stop(self):
        self.stopped += 1

    def get_agent_ids(self):
        return {"a", "b"}


@pytest.mark.parametrize("off_policy", [False, True])
def test_base_env_is_polled_and_sent_actions(off_policy):
    spec = PolicySpec(None, NUMBER, gym.spaces.Discrete(2), {})
    table = {"policies": {"a": spec, "b": spec}, "policy_mapping_fn": lambda agent, *args, **kwargs: agent}
    trainer = make(Polled, multiagent=table, rollout_fragment_length=12, env_config={"off_policy": off_policy})
    worker = trainer.workers.local_worker()
    batch = worker.sample()
    assert batch.env_steps() >= 12
    for agent, rewards in (("a", [1.0, 2.0, 3.0]), ("b", [-1.0] * 3)):
        rows = batch.policy_batches[agent]
        for episode in np.unique(rows["eps_id"]):
            mine = rows["eps_id"] == episode
            assert rows["obs"][mine][:, 0].tolist() == [0.0, 1.0, 2.0][: mine.sum()]
            assert rows["rewards"][mine].tolist() == rewards[: mine.sum()]
        # After a reset nobody has said yet what was done.
        assert not off_policy or (rows["actions"][rows["obs"][:, 0] > 0] == 1).all()
    base_env = worker.env
    assert isinstance(base_env, Polled)
    assert worker.async_env.get_agent_ids() == {"a", "b"}
    trainer.stop()
    assert base_env.stopped == 1


def test_gymnasium_spaces_and_five_values_do_as_well():
    class Modern(Counters):
        def __init__(self, config=None):
            super().__init__(config)
            self.observation_space = gymnasium.spaces.Box(0.0, 1e6, (1,), np.float32)

        def vector_reset(self):
            return super().vector_reset(), [{} for _ in range(COPIES)]

        def reset_at(self, index=None):
            return super().reset_at(index), {}

        def vector_step(self, actions):
            obs, rewards, dones, infos = super().vector_step(actions)
            return obs, rewards, [False] * COPIES, dones, infos

    batch = make(Modern).workers.local_worker().sample()
    assert not batch["terminateds"].any()
    assert batch["truncateds"].sum() == 2 * COPIES
