"""MBMPO: models by hand and as they learn, advantages, episodes in models, results, resume, and what is refused."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rlframe.agents.mbmpo import MBMPOTorchPolicy, MBMPOTrainer
from rlframe.agents.mbmpo.mbmpo_policy import baseline_advantages
from rlframe.agents.mbmpo.model_ensemble import (
    DynamicsEnsemble,
    DynamicsModel,
    EarlyStop,
    denormalize,
    mean_std_stats,
    normalize,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.wrappers.model_vector_env import ModelVectorEnv, action_rows, layer_with_reward
from rlframe.examples.env.known_rewards import CartPoleWrapper, HalfCheetahWrapper, HopperWrapper, PendulumWrapper
from rlframe.utils.errors import ConfigError, EnvError, UnsupportedSpaceException
from tests.contract.test_policies import make
from tests.helpers.frameworks import needs_tf

SMALL_DYNAMICS = {"fcnet_hiddens": [8], "train_epochs": 3, "batch_size": 32, "ensemble_size": 2}
SMALL_MBMPO = {
    "num_workers": 0, "rollout_fragment_length": 30, "horizon": 40, "num_maml_steps": 2, "maml_optimizer_steps": 2,
    "exploration_config": {"random_timesteps": 50}, "dynamics_model": SMALL_DYNAMICS,
    "model": {"fcnet_hiddens": [8]}, "seed": 0,
}  # fmt: skip


# --- the models ---------------------------------------------------------------------------------------------------


def test_moments_by_hand():
    rows = {
        "obs": np.array([[0.0, 3.0], [2.0, 3.0]], np.float32),
        "actions": np.array([[1.0], [-1.0]], np.float32),
        "new_obs": np.array([[1.0, 3.0], [5.0, 3.0]], np.float32),
    }
    found = mean_std_stats(rows)
    np.testing.assert_allclose(found["obs"], [[1.0, 3.0], [1.0, 0.0]])
    np.testing.assert_allclose(found["actions"], [[0.0], [1.0]])
    np.testing.assert_allclose(found["delta"], [[2.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(normalize(np.array([[4.0, 3.5]]), found["obs"]), [[3.0, 0.5]])  # 0.5, and not 5e9
    np.testing.assert_allclose(denormalize(np.array([[3.0, 7.0]]), found["delta"]), [[5.0, 7.0]])


@pytest.mark.parametrize("normal", [True, False])
def test_a_model_by_hand(normal):
    weights = {"out.weight": np.array([[0.5, 2.0]], np.float32), "out.bias": np.array([1.0], np.float32)}
    norms = {"obs": ([1.0], [2.0]), "actions": ([0.0], [0.5]), "delta": ([10.0], [4.0])} if normal else {}
    norms = {name: tuple(np.array(part, np.float32) for part in stats) for name, stats in norms.items()}
    layers = [{"kind": "dense", "name": "out", "activation": "linear", "units": 1}]
    model = DynamicsModel(layers, weights, norms)
    obs, actions = np.array([[5.0]], np.float32), np.array([[1.0]], np.float32)
    # Standardised inputs 2 and 2: f = 1 + 4 + 1 = 6, and 6 · 4 + 10 = 34 more; as they are: f = 2.5 + 2 + 1.
    np.testing.assert_allclose(model.next_obs(obs, actions), [[39.0 if normal else 10.5]], rtol=1e-6)
    np.testing.assert_allclose(model.targets(obs, np.array([[39.0]], np.float32)), [[6.0 if normal else 34.0]])
    error = model.loss(model.inputs(obs, actions), np.array([[4.0]], np.float32))
    assert error == pytest.approx(4.0 if normal else 2.25)


def test_learning_stops_when_the_moving_average_grows():
    stop = EarlyStop()
    # Averages: 1.475, 1.42625, 1.37493..., then 0.95 · 1.3749375 + 0.05 · 1.5 is more.
    assert [stop(loss) for loss in (1.0, 0.5, 0.4, 1.5)] == [False, False, False, True]
    stop = EarlyStop()
    assert [stop(loss) for loss in (1.0, 1.4)] == [False, False]  # worse, but below the average


def test_actions_are_rows():
    found = action_rows(gym.spaces.Discrete(3, start=-1), [-1, 1, 0])
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    assert action_rows(gym.spaces.Box(-1, 1, (2,)), [np.zeros(2), np.ones(2)]).tolist() == [[0, 0], [1, 1]]


def linear_rows(count=200):
    rng = np.random.default_rng(0)
    obs, actions = rng.normal(size=(count, 4)).astype(np.float32), rng.integers(3, size=count)
    moved = obs + 0.1 * obs[:, ::-1] + 0.2 * np.eye(3, 4, dtype=np.float32)[actions]
    return SampleBatch({"obs": obs, "actions": actions, "new_obs": moved})


def fitted(framework, **more):
    overrides = {"fcnet_hiddens": [16], "train_epochs": 20, "batch_size": 50, "ensemble_size": 2, **more}
    policy = make(framework, "MBMPO", {"dynamics_model": {**make_defaults(), **overrides}})
    policy.dynamics_model.add(linear_rows())
    return policy.dynamics_model, policy.dynamics_model.fit()


def make_defaults():
    return MBMPOTrainer.get_default_config()["dynamics_model"]


def test_models_learn_each_from_their_own_rows():
    ensemble, told = fitted("torch", lr=3e-3, train_epochs=60)
    assert (told["valid_loss"] < 0.1).all()  # of standardised changes: 1 is what their mean has
    rows = linear_rows(20)
    for place in (0, 1):
        predicted = ensemble.model(place).next_obs(rows["obs"], np.eye(3, dtype=np.float32)[rows["actions"]])
        assert np.square(predicted - rows["new_obs"]).mean() < 0.1 * np.square(rows["obs"] - rows["new_obs"]).mean()
    one, other = (ensemble.model(place).weights["dynamics.hidden_0.weight"] for place in (0, 1))
    assert np.abs(one - other).max() > 0.1


def test_old_rows_make_way():
    ensemble, _ = fitted("torch", train_epochs=1)
    ensemble.replay_buffer_max = 250
    ensemble.add(linear_rows(100))
    assert {name: len(column) for name, column in ensemble.replay_buffer.items()} == {
        "obs": 250, "actions": 250, "new_obs": 250,
    }  # fmt: skip
    np.testing.assert_array_equal(ensemble.replay_buffer["obs"][-100:], linear_rows(100)["obs"])


@pytest.mark.parametrize("ratio", [0.001, 0.99])
def test_there_are_rows_to_learn_from_and_rows_held_out(ratio):
    _, told = fitted("torch", train_epochs=1, valid_split_ratio=ratio)
    assert np.isfinite([*told["train_loss"], *told["valid_loss"]]).all()


@needs_tf
def test_both_frameworks_fit_the_same():
    overrides = {"dynamics_model": {**make_defaults(), **SMALL_DYNAMICS}}
    one, other = make("torch", "MBMPO", overrides).dynamics_model, make("tf", "MBMPO", overrides).dynamics_model
    for mine, theirs in zip(one.members, other.members, strict=True):
        theirs.set_weights(mine.get_weights())
    told = []
    for ensemble in (one, other):
        ensemble.add(linear_rows())
        told.append(ensemble.fit())
    for name, column in told[0].items():
        np.testing.assert_allclose(told[1][name], column, rtol=1e-3)
    for name, weights in one.model(1).weights.items():
        np.testing.assert_allclose(other.model(1).weights[name], weights, atol=1e-5)


# --- advantages ---------------------------------------------------------------------------------------------------


def test_advantages_against_a_regression():
    rng, gamma, lambda_ = np.random.default_rng(1), 0.9, 0.8
    batch = SampleBatch(
        {
            "obs": rng.normal(0, 8, (9, 2)).astype(np.float32), "rewards": rng.normal(size=9).astype(np.float32),
            "eps_id": np.repeat([4, 7], [5, 4]), "terminateds": np.zeros(9, bool), "truncateds": np.arange(9) % 5 == 4,
            "dones": np.arange(9) % 5 == 4, "t": np.array([0, 1, 2, 3, 4, 0, 1, 2, 3]),
        }
    )  # fmt: skip
    features, returns, ends = [], [], []
    for start, stop in ((0, 5), (5, 9)):
        for row in range(start, stop):
            t = (row - start) / 100
            s = np.clip(batch["obs"][row].astype(float), -10, 10)
            features.append([*s, *(s**2), t, t**2, t**3, 1.0])
            returns.append(sum(gamma ** (later - row) * batch["rewards"][later] for later in range(row, stop)))
            ends.append(stop)
    features = np.array(features)
    weights = np.linalg.solve(features.T @ features + 1e-5 * np.eye(8), features.T @ returns)
    values = features @ weights
    wanted = []
    for row, stop in enumerate(ends):
        after = [*values[row + 1 : stop], 0.0]
        errors = [batch["rewards"][row + k] + gamma * after[k] - values[row + k] for k in range(stop - row)]
        wanted.append(sum((gamma * lambda_) ** k * error for k, error in enumerate(errors)))
    found = baseline_advantages(batch, gamma, lambda_)["advantages"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# --- environments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_class", [CartPoleWrapper, PendulumWrapper, HalfCheetahWrapper, HopperWrapper])
def test_rewards_are_those_of_the_environment(env_class):
    if env_class in (HalfCheetahWrapper, HopperWrapper):
        pytest.importorskip("mujoco")
    env = env_class()
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(30):
        action = env.action_space.sample()
        following, reward, over, *_ = env.step(action)
        if over:
            break  # CartPole pays for the step that it falls in
        told = env.reward(obs[None], action_rows(env.action_space, [action]), following[None])
        # A robot's velocity is that behind the step here, and the mean over it there.
        np.testing.assert_allclose(told, [reward], rtol=1e-4 if "mujoco" not in str(env) else 0.5, atol=0.3)
        obs = following


def test_episodes_begin_in_the_environment_and_go_on_in_the_model():
    class Ends(PendulumWrapper):
        def done(self, obs_next):
            return obs_next[:, 2] > 2.5

    class Faster:
        def next_obs(self, obs, actions):
            return obs + np.array([9.0, 0.0, 1.0]) * actions

    env = ModelVectorEnv(lambda _: Ends(), 2)
    starts = []
    for _ in range(2):
        env.begin(Faster(), 3)
        starts.append([env.reset_at(0), env.reset_at(1)])
    np.testing.assert_array_equal(*starts)
    assert not np.array_equal(*starts[0])
    before = starts[0]
    obs, rewards, dones, _ = env.vector_step([np.array([1.0]), np.array([2.0])])
    for place, action in enumerate((1.0, 2.0)):
        wanted = before[place] + [9.0 * action, 0.0, action]
        np.testing.assert_allclose(obs[place], np.clip(wanted, [-1, -1, -8], [1, 1, 8]), rtol=1e-6)
        angle = np.arctan2(before[place][1], before[place][0])
        assert rewards[place] == pytest.approx(-(angle**2) - 0.1 * before[place][2] ** 2 - 0.001 * action**2, rel=1e-5)
        assert dones[place] == (wanted[2] > 2.5)


def test_the_layer_that_knows_rewards_is_found():
    class Scaled(gym.RewardWrapper):
        def reward(self, reward):
            return 0.1 * reward

    assert type(layer_with_reward(Scaled(gym.wrappers.TimeLimit(CartPoleWrapper(), 5)))) is CartPoleWrapper
    with pytest.raises(EnvError, match=r"which has no reward\(\); wanted reward\(obs, action, next_obs\)"):
        layer_with_reward(gym.make("CartPole-v1"))


def test_answers_of_another_shape_are_named():
    class OneNumber(CartPoleWrapper):
        def reward(self, obs, action, obs_next):
            return 1.0

    with pytest.raises(EnvError, match=r"reward\(\) of .* returned the shape \(\) for 1 rows; wanted \(1,\)"):
        MBMPOTrainer(SMALL_MBMPO, env=lambda _: OneNumber()).train()


# --- the whole ----------------------------------------------------------------------------------------------------


class Numbered(DynamicsEnsemble):
    """Predicts a model's number, whatever was learned."""

    def model(self, place):
        return _Constant(place, super().model(place))


class _Constant:
    def __init__(self, place, learned):
        self._place, self._learned = place, learned

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._learned, name)

    def next_obs(self, obs, actions):
        return np.full_like(obs, 0.01 * (self._place + 1))


def with_rounds(seen):
    class Looks(MBMPOTorchPolicy):
        def learn_on_rounds(self, rounds):
            seen.append([[batch.copy() for batch in batches] for batches in rounds])
            return super().learn_on_rounds(rounds)

    return MBMPOTrainer.with_updates(name="MBMPO", get_policy_class=lambda _: Looks)


def test_each_task_is_a_model():
    seen = []
    config = {**SMALL_MBMPO, "dynamics_model": {**SMALL_DYNAMICS, "custom_model": Numbered, "ensemble_size": 3}}
    trainer = with_rounds(seen)(config, env=CartPoleWrapper)
    result = trainer.train()
    assert [[len(batches) for batches in rounds] for rounds in seen] == [[3, 3], [3, 3]]
    for rounds in seen:
        for batches in rounds:
            assert [set(np.unique(batch["new_obs"])) for batch in batches] == [
                {np.float32(0.01)}, {np.float32(0.02)}, {np.float32(0.03)},
            ]  # fmt: skip
            for batch in batches:
                assert abs(batch["advantages"].mean()) < 1e-5
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["inner_kl"].shape == (3,)
    trainer.stop()


def test_results_are_of_real_episodes_and_say_what_models_gave(tmp_path):
    trainer = MBMPOTrainer({**SMALL_MBMPO, "inner_adaptation_steps": 2}, env=CartPoleWrapper)
    first = trainer.train()
    for number in (0, 1):
        for place in (0, 1, 2):
            of_model = [first[f"MAMLIter{number}_DynaTrajInner_{place}_episode_reward_{key}"] for key in ("min", "max")]
            assert 0 <= of_model[0] <= of_model[1] <= 40
    # Random actions first, then a fragment by the policy: its episodes alone are reported.
    assert 50 + 30 <= first["info"]["num_steps_sampled"] == first["timesteps_total"] < 50 + 30 + 2 * 40
    assert sum(first["hist_stats"]["episode_lengths"]) < first["timesteps_total"] - 49
    assert first["info"]["num_steps_trained"] >= 2 * 3 * 2 * 40  # of imagined ones
    assert first["info"]["dynamics"]["epochs"].shape == (2,)
    trainer.stop()


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=[needs_tf, pytest.mark.slow])])
def test_it_resumes_exactly(tmp_path, framework):
    config = {**SMALL_MBMPO, "framework": framework}
    trainer = MBMPOTrainer(config, env=PendulumWrapper)
    trainer.train()
    path = trainer.save(str(tmp_path))
    again = MBMPOTrainer(config, env=PendulumWrapper)
    again.restore(path)
    wanted, found = trainer.train(), again.train()
    for key in ("learner", "dynamics", "num_steps_sampled"):
        np.testing.assert_equal(found["info"][key], wanted["info"][key])
    assert found["episode_reward_mean"] == wanted["episode_reward_mean"]
    np.testing.assert_equal(again.get_weights(), trainer.get_weights())
    trainer.stop(), again.stop()


@pytest.mark.ray
@pytest.mark.slow
def test_workers_play_in_the_next_of_the_models_and_resume_exactly(tmp_path, ray_runtime):
    seen = []
    config = {**SMALL_MBMPO, "num_workers": 2, "dynamics_model": {**SMALL_DYNAMICS, "custom_model": Numbered}}
    trainer = with_rounds(seen)(config, env=CartPoleWrapper)
    trainer.train()
    path = trainer.save(str(tmp_path))
    wanted = trainer.train()
    trainer.stop()
    for batches in seen[-1]:
        assert [set(np.unique(batch["new_obs"])) for batch in batches] == [{np.float32(0.01)}, {np.float32(0.02)}]
    again = with_rounds([])(config, env=CartPoleWrapper)
    again.restore(path)
    found = again.train()
    again.stop()
    np.testing.assert_equal(found["info"]["learner"], wanted["info"]["learner"])
    assert found["episode_reward_mean"] == wanted["episode_reward_mean"]


def test_actions_are_random_before_the_first_fit_and_never_in_models():
    seen = []
    trainer = with_rounds(seen)({**SMALL_MBMPO, "exploration_config": {"random_timesteps": 400}}, env=CartPoleWrapper)
    weights = trainer.get_policy().get_weights()
    certain = {name: np.zeros_like(array) for name, array in weights.items()}
    bias = next(name for name, array in weights.items() if array.shape == (2,))
    certain[bias] = np.array([30.0, -30.0], np.float32)
    trainer.get_policy().set_weights(certain)
    trainer.train()
    real = trainer.get_policy().dynamics_model.replay_buffer["actions"]
    assert 0.4 < real[:400, 0].mean() < 0.6
    for batches in seen[0]:
        for batch in batches:
            assert (batch["actions"] == 0).all()
    trainer.stop()


def test_models_learn_the_environments_actions():
    trainer = MBMPOTrainer(SMALL_MBMPO, env=PendulumWrapper)
    trainer.train()
    actions = trainer.get_policy().dynamics_model.replay_buffer["actions"]
    assert 1.0 < np.abs(actions).max() <= 2.0  # of torques within ±2, and not of the policy's, within ±1
    trainer.stop()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"batch_mode": "truncate_episodes"}, "an episode belongs to one task"),
        ({"create_env_on_driver": False}, "what the models learn from is sampled on the driver"),
        ({"horizon": None}, "episodes in a model need not end"),
        ({"observation_filter": "MeanStdFilter"}, "models predict what the environment gives"),
        ({"output": "/nowhere"}, "most rows are of learned models"),
        ({"vectorized_env": True}, "begin in environments one by one"),
        ({"dynamics_model": {"ensemble_size": 0}}, "ensemble_size"),
        ({"dynamics_model": {"ensemble": 5}}, "ensemble_size"),
        ({"num_maml_steps": 0}, "num_maml_steps"),
        ({"model": {"use_lstm": True}}, "without memory"),
        ({"multiagent": {"policies": {"one"}}}, "one policy adapts"),
    ],
)
def test_configs_that_cannot_be_are_refused(wrong, sentence):
    with pytest.raises(ConfigError, match=sentence):
        MBMPOTrainer({**SMALL_MBMPO, **wrong}, env=PendulumWrapper)


def test_environments_without_rewards_are_refused_when_the_trainer_is_made():
    with pytest.raises(EnvError, match=r"which has no reward\(\)"):
        MBMPOTrainer(SMALL_MBMPO, env=CartPoleEnv)


@pytest.mark.parametrize(
    ("observed", "acted", "sentence"),
    [
        (gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), gym.spaces.Discrete(2), "wanted a Box of one dimension"),
        (gym.spaces.Discrete(4), gym.spaces.Discrete(2), "wanted a Box of one dimension"),
        (gym.spaces.Box(-1, 1, (3,)), gym.spaces.MultiDiscrete([2, 2]), "wanted Discrete, or a Box of floats"),
    ],
)
def test_spaces_that_models_do_not_predict_are_refused(observed, acted, sentence):
    class Other(gym.Env):
        observation_space, action_space = observed, acted

        def reset(self, *, seed=None, options=None):
            return observed.sample(), {}

        def reward(self, obs, action, obs_next):
            return np.zeros(len(obs))

    with pytest.raises(UnsupportedSpaceException, match=sentence):
        MBMPOTrainer(SMALL_MBMPO, env=lambda _: Other())
