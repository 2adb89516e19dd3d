"""`rlframe.rollout`, RLlib's module that plays checkpoints: what is played, and what is written of it."""

from __future__ import annotations

import pickle
import shelve

import numpy as np
import pytest
from gymnasium import Env, spaces

from rlframe.agents.pg import PGTrainer
from rlframe.env import MultiAgentEnv
from rlframe.env.registry import register_env
from rlframe.rollout import (
    DefaultMapping,
    RolloutSaver,
    create_parser,
    default_policy_agent_mapping,
    keep_going,
    rollout,
    run,
)
from rlframe.utils.errors import ConfigError

pytest.importorskip("torch")


class Five(Env):
    """Episodes of five steps, each worth one."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(2, self.t / 5, np.float32), 1.0, self.t == 5, False, {"t": self.t}


class Pair(MultiAgentEnv):
    """Two agents in the contract of RLlib 1.x; the second leaves after two of four steps."""

    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)

    def __init__(self, config=None):
        super().__init__()

    def reset(self):
        self.t = 0
        return {"left": 0, "right": 1}

    def step(self, actions):
        assert set(actions) == ({"left", "right"} if self.t < 2 else {"left"})
        self.t += 1
        who = list(actions)
        dones = {"right": self.t >= 2, "left": self.t == 4, "__all__": self.t == 4}
        return dict.fromkeys(who, 2), dict.fromkeys(who, 0.5), dones, {name: {} for name in who}


CONFIG = {"framework": "torch", "num_workers": 0, "train_batch_size": 20, "model": {"fcnet_hiddens": [4]}}


@pytest.fixture(autouse=True)
def _registered():
    register_env("rollout_five", Five)


@pytest.fixture
def trainer():
    made = PGTrainer(env="rollout_five", config={**CONFIG, "model": {**CONFIG["model"], "use_lstm": True}})
    yield made
    made.stop()


def test_steps_of_whole_episodes_are_saved(trainer, tmp_path, capsys):
    with RolloutSaver(tmp_path / "steps.pkl", save_info=True) as saver:
        rollout(trainer, "rollout_five", 0, num_episodes=2, saver=saver)
    episodes = pickle.loads((tmp_path / "steps.pkl").read_bytes())
    assert [len(episode) for episode in episodes] == [5, 5]
    obs, action, next_obs, reward, done, info = episodes[1][-1]
    assert (obs[0], next_obs[0], reward, done, info) == (np.float32(0.8), 1.0, 1.0, True, {"t": 5})
    assert action in (0, 1)
    assert capsys.readouterr().out == "Episode #1: reward: 5.0\nEpisode #2: reward: 5.0\n"


def test_num_steps_cut_the_last_episode(trainer, capsys):
    rollout(trainer, None, 7)
    assert capsys.readouterr().out == "Episode #1: reward: 5.0\nEpisode #2: reward: 2.0\n"


def test_command_plays_a_checkpoint_into_a_shelf(trainer, tmp_path):
    parser = create_parser()
    flags = ["--run", "PG", "--env", "rollout_five", "--episodes", "2", "--out", str(tmp_path / "shelf")]
    run(parser.parse_args([trainer.save(str(tmp_path)), *flags, "--use-shelve", "--track-progress"]), parser)
    with shelve.open(str(tmp_path / "shelf")) as shelf:
        assert shelf["num_episodes"] == 2
        assert [len(step) for step in shelf["1"]] == [5] * 5
    assert not list(tmp_path.glob("__progress*"))


def test_command_refuses_videos_by_name_of_what_records_them(tmp_path):
    parser = create_parser()
    with pytest.raises(ConfigError, match="rlframe play CHECKPOINT --video-dir"):
        run(parser.parse_args([str(tmp_path), "--run", "PG", "--video-dir", "here"]), parser)


def test_command_plays_an_untrained_trainer_without_a_checkpoint(capsys):
    parser = create_parser()
    for flags in (["--env", "rollout_five"], ["--config", '{"env": "rollout_five"}']):
        run(parser.parse_args(["--run", "PG", "--episodes", "1", *flags]), parser)
        assert capsys.readouterr().out == "Episode #1: reward: 5.0\n"
        with pytest.raises(SystemExit):
            run(parser.parse_args(flags), parser)
        assert "required: checkpoint, or --run" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(parser.parse_args(["--run", "PG"]), parser)
    assert "required: checkpoint, or --env" in capsys.readouterr().err


def test_several_agents_act_by_their_policies_until_they_leave(tmp_path):
    spec = (None, Pair.observation_space, Pair.action_space, {})
    several = {"policies": {"left": spec, "right": spec}, "policy_mapping_fn": lambda agent_id: agent_id}
    trainer = PGTrainer(env=Pair, config={**CONFIG, "multiagent": several})
    with RolloutSaver(str(tmp_path / "steps")) as saver:
        rollout(trainer, None, None, 1, saver)
    trainer.stop()
    [episode] = pickle.loads((tmp_path / "steps").read_bytes())
    assert [set(step[1]) for step in episode] == [{"left", "right"}] * 2 + [{"left"}] * 2
    assert [step[4] for step in episode] == [False, False, False, True]


def test_small_parts():
    assert default_policy_agent_mapping("anybody") == "default_policy"
    assert DefaultMapping(lambda key: key * 2)[4] == 8
    assert [keep_going(5, 5, 0, 0), keep_going(4, 5, 0, 0), keep_going(9, 5, 1, 2), keep_going(0, 0, 2, 2)] == [
        False, True, True, False,
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="outfile"):
        RolloutSaver(use_shelve=True)


def test_a_saver_that_is_derived_keeps_episodes_by_rllibs_attributes():
    class Kept(RolloutSaver):
        def end_rollout(self):
            self._rollouts.append(self._current_rollout)
            self._num_episodes += 1

        def append_step(self, obs, action, next_obs, reward, done, info):
            self._current_rollout.append(reward)
            self._total_steps += 1

    trainer = PGTrainer(env="CartPole-v1", config=CONFIG)
    with Kept() as saver:
        rollout(trainer, None, None, 2, saver)
    trainer.stop()
    assert (len(saver._rollouts), saver._num_episodes) == (2, 2)
    assert sum(map(len, saver._rollouts)) == saver._total_steps > 2


def test_progress_stands_in_a_file_while_episodes_are_played(tmp_path):
    with RolloutSaver(tmp_path / "steps", write_update_file=True, target_episodes=3) as saver:
        saver.begin_rollout()
        saver.append_step(0, 0, 0, 0.0, True, {})
        saver.end_rollout()
        assert (tmp_path / "__progress_steps").read_text() == "1 episodes and 1 steps of 3 episodes\n"
    assert [path.name for path in tmp_path.iterdir()] == ["steps"]
