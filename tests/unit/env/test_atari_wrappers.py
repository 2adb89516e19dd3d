"""Atari preprocessing, against Gymnasium's own."""

import gymnasium
import numpy as np
import pytest

pytest.importorskip("ale_py", reason="needs ale-py")
pytest.importorskip("cv2", reason="needs opencv-python-headless")

import ale_py

from rlframe.env.wrappers import atari_wrappers as aw
from rlframe.utils.errors import EnvError

gymnasium.register_envs(ale_py)
GAME = "BreakoutNoFrameskip-v4"


@pytest.fixture(scope="module")
def make():
    """Makes games, and closes them at the end."""
    made = []

    def make_one(name=GAME, **kwargs):
        made.append(gymnasium.make(name, **kwargs))
        return made[-1]

    yield make_one
    for env in made:
        env.close()


def actions(env, count, seed=0):
    return np.random.default_rng(seed).integers(env.action_space.n, size=count)


@pytest.mark.parametrize("name", [GAME, "PongNoFrameskip-v4"])
def test_frames_rewards_and_ends_are_those_of_gymnasium(make, name):
    theirs = gymnasium.wrappers.AtariPreprocessing(make(name), noop_max=30, frame_skip=4, screen_size=84)
    noop = aw.GreyScreen(aw.NoopResetEnv(aw.MonitorEnv(make(name)), noop_max=30))
    ours = aw.WarpFrame(aw.MaxAndSkipEnv(noop, skip=4), 84)
    for seed in (1, 2):
        wanted, _ = theirs.reset(seed=seed)
        got, _ = ours.reset(seed=seed)
        np.testing.assert_array_equal(got[:, :, 0], wanted)
        for action in actions(ours, 150, seed):
            wanted, *wanted_rest, _ = theirs.step(action)
            got, *got_rest, _ = ours.step(action)
            assert got_rest == wanted_rest
            if wanted_rest[1]:  # Gymnasium shows an older frame where a game ends within the skipped ones
                break
            np.testing.assert_array_equal(got[:, :, 0], wanted)


def test_lives_end_episodes_where_gymnasium_ends_them(make):
    theirs = gymnasium.wrappers.AtariPreprocessing(make(), noop_max=0, terminal_on_life_loss=True)
    ours = aw.WarpFrame(aw.EpisodicLifeEnv(aw.MaxAndSkipEnv(aw.GreyScreen(make()), skip=4)))
    theirs.reset(seed=3)
    ours.reset(seed=3)
    for action in actions(ours, 300):
        *_, wanted, _, _ = theirs.step(action)
        *_, got, _, _ = ours.step(action)
        assert got == wanted
        if got:
            break
    assert got, "300 random steps lose a life of Breakout"


def test_wrapped_game_stacks_frames_and_goes_on_with_the_next_life(make):
    env = aw.wrap_deepmind(make(), dim=42)
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (42, 42, 4), np.uint8)
    assert env.get_wrapper_attr("lives") == 0
    obs, _ = env.reset(seed=1)
    assert obs.shape == (42, 42, 4)
    for k in range(1, 4):
        np.testing.assert_array_equal(obs[:, :, k], obs[:, :, 0])
    before = obs
    obs, *_ = env.step(0)
    np.testing.assert_array_equal(obs[:, :, :3], before[:, :, 1:])
    monitor, lives, ends = aw.get_wrapper_by_cls(env, aw.MonitorEnv), [], 0
    while not monitor.get_episode_rewards():
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            lives.append(env.unwrapped.ale.lives())
            ends += 1
            env.reset(seed=99)
    assert lives == [4, 3, 2, 1, 0]
    assert ends == 5
    (result,) = monitor.next_episode_results()
    assert result == (monitor.get_episode_rewards()[0], monitor.get_episode_lengths()[0])
    assert list(monitor.next_episode_results()) == []


def test_frames_that_the_game_skips_itself_are_not_skipped_again(make):
    assert aw.get_wrapper_by_cls(aw.wrap_deepmind(make("ALE/Breakout-v5")), aw.MaxAndSkipEnv) is None
    assert aw.get_wrapper_by_cls(aw.wrap_deepmind(make("ALE/Breakout-v5", frameskip=1)), aw.MaxAndSkipEnv) is not None


def test_colour_frames_are_made_grey(make):
    env = aw.WarpFrame(make(), 84)
    assert env.observation(np.full((210, 160, 3), 200, np.uint8)).shape == (84, 84, 1)
    assert (env.observation(np.full((210, 160, 3), 200, np.uint8)) == 200).all()


def test_clipped_rewards_are_signs(make):
    env = aw.ClipRewardEnv(make())
    assert [env.reward(value) for value in (-3.0, 0, 7)] == [-1.0, 0.0, 1.0]


def test_only_screens_of_games_are_wrapped(make):
    config = {"preprocessor_pref": "deepmind", "model": {"dim": 84, "framestack": False}}
    assert aw.is_atari(make())
    assert not aw.is_atari(make(obs_type="ram"))
    cartpole = gymnasium.make("CartPole-v1")
    assert aw.with_preprocessing(lambda _: cartpole, config)(None) is cartpole
    wrapped = aw.with_preprocessing(lambda _: make(), config)(None)
    assert wrapped.observation_space.shape == (84, 84, 1)
    assert aw.with_preprocessing(lambda _: wrapped, config)(None) is wrapped, "frames that are small already stay"
    evaluated = aw.with_preprocessing(lambda _: make(), {**config, "in_evaluation": True})(None)
    assert aw.get_wrapper_by_cls(evaluated, aw.EpisodicLifeEnv) is None
    for preference in ("rllib", None):
        raw = aw.with_preprocessing(lambda _: make(), {**config, "preprocessor_pref": preference})(None)
        assert raw.observation_space.shape == (210, 160, 3)


def test_game_without_fire_is_refused_by_its_wrapper(make):
    with pytest.raises(EnvError, match="wanted FIRE"):
        aw.FireResetEnv(make("FreewayNoFrameskip-v4"))


@pytest.mark.parametrize(("preference", "shape"), [("deepmind", (42, 42, 4)), ("rllib", (42, 42, 3))])
def test_worker_samples_a_game_as_its_config_says(preference, shape):
    from rlframe.agents.registry import get_trainer_class

    config = {
        "num_workers": 0, "preprocessor_pref": preference, "rollout_fragment_length": 20, "train_batch_size": 20,
        "horizon": 10, "seed": 1, "log_sys_usage": False,
        "model": {"dim": 42, "conv_filters": [[4, [8, 8], 8], [8, [6, 6], 1]], "fcnet_hiddens": [8]},
    }  # fmt: skip
    trainer = get_trainer_class("PG")(config, env=GAME)
    worker = trainer.workers.local_worker()
    batch = worker.sample()
    assert batch["obs"].shape[1:] == shape
    assert set(np.unique(batch["rewards"])) <= {-1.0, 0.0, 1.0}
    trainer.stop()


def test_metrics_of_a_worker_are_those_of_whole_games():
    from rlframe.evaluation.episodic_life import EpisodicLifeMetrics
    from rlframe.evaluation.metrics import RolloutMetrics

    env = aw.EpisodicLifeEnv(aw.MonitorEnv(gymnasium.make(GAME)))
    env.reset(seed=0)
    env.env._results = [(7.0, 120)]
    merge = EpisodicLifeMetrics().merge
    lives = [RolloutMetrics(5, 3.0, hist_data={"x": [1]}), RolloutMetrics(6, 4.0, hist_data={"x": [2]})]
    (game,) = merge([env], lives)
    assert (game.episode_reward, game.episode_length, game.hist_data) == (7.0, 120, {"x": [1, 2]})
    assert merge([env], lives) == []
    assert merge([gymnasium.make("CartPole-v1")], lives) == lives
