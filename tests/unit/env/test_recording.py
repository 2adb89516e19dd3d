"""`record_env`: videos of episodes as they are sampled."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.pg import PGTrainer
from rlframe.config.renames import RenamedKeyWarning
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.utils.errors import ConfigError

pytest.importorskip("imageio_ffmpeg", reason="needs imageio-ffmpeg")

CONFIG = {"num_workers": 0, "train_batch_size": 10, "rollout_fragment_length": 10}
SPACES = (gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2))


class Drawn(gym.Env):
    """Episodes of 4 steps, drawn in shades; in the contract of gym 0.21."""

    metadata = {"render.modes": ["human", "rgb_array"]}  # noqa: RUF012 - as gym's own
    observation_space, action_space = SPACES

    def __init__(self, config):
        self.drawn = []

    def reset(self):
        self.t = 0
        return np.zeros(2, np.float32)

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t >= 4, {}

    def render(self, mode="human"):
        self.drawn.append((mode, self.t))
        return np.full((16, 15, 3), 20 * self.t, np.uint8)


class Two(MultiAgentEnv):
    """The same for two agents."""

    metadata = Drawn.metadata
    observation_space, action_space = SPACES

    def __init__(self, config):
        super().__init__()
        self.one = Drawn(config)

    def reset(self):
        return dict.fromkeys("ab", self.one.reset())

    def step(self, actions):
        obs, reward, done, info = self.one.step(0)
        return (
            *(dict.fromkeys(actions, each) for each in (obs, reward)),
            {"__all__": done},
            dict.fromkeys(actions, info),
        )

    def render(self, mode="human"):
        return self.one.render(mode)


def files(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.mp4") if path.stat().st_size > 500)


@pytest.mark.parametrize("env", [Drawn, Two])
def test_every_episode_is_a_file(env, tmp_path):
    trainer = PGTrainer({**CONFIG, "record_env": str(tmp_path / "videos")}, env=env)
    trainer.train()
    trainer.stop()
    assert files(tmp_path / "videos") == [f"worker_0_env_0_episode_{number:03d}" for number in range(3)]
    made = trainer.workers.local_worker().env
    assert type(getattr(made, "env", made)) is env
    drawn = getattr(made, "one", made).drawn
    assert drawn[-8:-3] == [("rgb_array", t) for t in range(5)]


def test_true_and_its_old_name_are_the_trainers_directory(tmp_path):
    with pytest.warns(RenamedKeyWarning):
        trainer = PGTrainer({**CONFIG, "monitor": True}, env=Drawn)
    trainer.train()
    trainer.stop()
    assert len(files(Path(trainer.logdir))) == 3


def test_environments_that_draw_no_pictures_are_told_of(caplog, tmp_path):
    class Dark(Drawn):
        metadata = {"render.modes": ["human"]}  # noqa: RUF012 - as gym's own

    trainer = PGTrainer({**CONFIG, "record_env": str(tmp_path)}, env=Dark)
    trainer.train()
    assert files(tmp_path) == []
    assert "no videos of Dark" in caplog.text


def test_vectorised_environments_are_not_filmed():
    with pytest.raises(ConfigError, match="record_env"):
        PGTrainer({**CONFIG, "record_env": True, "vectorized_env": True}, env="CartPole-v1")


def test_a_program_films_by_rllibs_function(tmp_path):
    from rlframe.env.utils import record_env_wrapper

    env = gym.make("CartPole-v1", render_mode="rgb_array")
    assert record_env_wrapper(env, False, str(tmp_path), {"in_evaluation": True}) is env
    assert record_env_wrapper(env, "films", str(tmp_path), {"in_evaluation": True}) is env
    env.reset(seed=0)
    while not env.step(0)[2]:
        pass
    assert [path.name for path in tmp_path.glob("films/*.mp4")] == ["evaluation_worker_0_env_0_episode_000.mp4"]
