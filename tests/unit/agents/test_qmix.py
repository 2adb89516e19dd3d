"""QMIX from the environment to the checkpoint."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.qmix import DEFAULT_CONFIG, QMixTrainer
from rlframe.agents.qmix.qmix_policy import QMixTorchPolicy
from rlframe.agents.registry import get_trainer_class
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.examples.env.two_step_game import TwoStepGame
from rlframe.models.preprocessors import get_preprocessor
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from tests.helpers.frameworks import needs_tf

SMALL = {
    "num_workers": 0, "seed": 5, "min_iter_time_s": 0, "log_sys_usage": False, "learning_starts": 20,
    "timesteps_per_iteration": 60, "model": {"lstm_cell_size": 8}, "mixing_embed_dim": 4, "train_batch_size": 10,
    "target_network_update_freq": 30, "exploration_config": {"epsilon_timesteps": 100},
}  # fmt: skip


class Signals(MultiAgentEnv):
    """Three agents see a number only at first, and later must name it; the game is cut off after `length` steps.

    Observations have a state and a mask: action 2 is never valid, action 1 not at the first step.
    """

    def __init__(self, config=None):
        config = config or {}
        self.length, self.terminates = config.get("length", 4), config.get("terminates", True)
        self.possible_agents = ["x", "y", "z"]
        box = gym.spaces.Box(-5, 5, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(
            {"obs": box, "state": gym.spaces.Discrete(2), "action_mask": gym.spaces.MultiBinary(3)}
        )
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.t, self.number = 0, int(self.rng.integers(2))
        return self._obs(), {}

    def step(self, action_dict):
        assert 2 not in action_dict.values(), "an invalid action"
        assert self.t > 0 or 1 not in action_dict.values(), "an invalid action"
        self.t += 1
        rewards = {agent: float(self.t > 1 and action == self.number) for agent, action in action_dict.items()}
        over = self.t == self.length
        ends = {"__all__": over and self.terminates}, {"__all__": over and not self.terminates}
        return self._obs(), rewards, *ends, {}

    def _obs(self):
        seen = np.array([self.number * 2 - 1 if self.t == 0 else 0, self.t / 4], np.float32)
        mask = np.array([1, self.t > 0, 0], np.int8)
        return {agent: {"obs": seen, "state": self.number, "action_mask": mask} for agent in self.possible_agents}


def two_steps(_=None):
    return TwoStepGame().with_agent_groups({"both": [0, 1]})


def signals(config=None):
    return Signals(config).with_agent_groups({"team": ["x", "y", "z"]})


@pytest.fixture
def make():
    made = []

    def build(env=two_steps, cls=QMixTrainer, **overrides):
        made.append(cls({**copy.deepcopy(SMALL), **overrides}, env=env))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()


def same(one, other):
    assert set(one) == set(other)
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_defaults_are_those_of_rllib():
    wanted = {
        "mixer": "qmix", "mixing_embed_dim": 32, "double_q": True, "optim_alpha": 0.99, "optim_eps": 1e-5,
        "grad_clip": 10, "lr": 5e-4, "train_batch_size": 32, "rollout_fragment_length": 4, "learning_starts": 1000,
        "target_network_update_freq": 500, "timesteps_per_iteration": 1000, "batch_mode": "complete_episodes",
        "num_workers": 0,
    }  # fmt: skip
    assert {key: DEFAULT_CONFIG[key] for key in wanted} == wanted
    assert DEFAULT_CONFIG["replay_buffer_config"]["capacity"] == 1000
    assert (DEFAULT_CONFIG["model"]["lstm_cell_size"], DEFAULT_CONFIG["model"]["max_seq_len"]) == (64, 999_999)
    assert get_trainer_class("QMIX") is QMixTrainer


def test_names_are_where_rllib_has_them():
    from rlframe.agents.qmix import QMixTorchPolicy, mixers, qmix_policy
    from rlframe.rllib1x.qmix_torch import QMixer, VDNMixer

    assert (mixers.QMixer, mixers.VDNMixer) == (QMixer, VDNMixer)
    assert qmix_policy.QMixTorchPolicy is QMixTorchPolicy
    with pytest.raises(AttributeError):
        _ = mixers.Other


def test_copies_of_rllibs_policy_find_its_parts():
    torch = pytest.importorskip("torch")
    from rlframe.agents.qmix.model import RNNModel, _get_size
    from rlframe.agents.qmix.qmix_policy import _add_agent_dim, _drop_agent_dim, _mac, _unroll_mac, _validate
    from rlframe.models import MODEL_DEFAULTS, ModelCatalog

    one, choices = Box(-1, 1, (3,)), Discrete(2)
    group = Tuple([one, one])
    flat = Box(-1, 1, (6,))
    flat.original_space = group
    _validate(flat, Tuple([choices, choices]))
    for wrong, message in (
        ((one, Tuple([choices])), "Got observation space None, wanted a Tuple"),
        ((flat, choices), "Got action space"),
        ((flat, Tuple([choices, Discrete(3)])), "wanted the same of all agents"),
        ((flat, group), "wanted a Discrete one"),
    ):
        with pytest.raises(ValueError, match=message):
            _validate(*wrong)

    config = {**MODEL_DEFAULTS, "lstm_cell_size": 4, "n_agents": 2}
    model = ModelCatalog.get_model_v2(one, choices, 2, config, "torch", "model", default_model=RNNModel)
    assert (_get_size(one), model.obs_size, model.get_initial_state()[0].shape) == (3, 3, (2, 4))
    obs = torch.as_tensor(np.random.default_rng(0).normal(size=(5, 3, 2, 3)), dtype=torch.float32)
    values = _unroll_mac(model, obs)
    assert values.shape == (5, 3, 2, 2)
    states = [torch.zeros(5, 2, 4)]
    for step in range(3):
        made, states = _mac(model, obs[:, step], states)
        torch.testing.assert_close(values[:, step], made)
    torch.testing.assert_close(_add_agent_dim(_drop_agent_dim(obs[:, 0]), 2), obs[:, 0])


@pytest.mark.parametrize("env", [two_steps, signals], ids=["plain", "masks and state"])
@pytest.mark.parametrize("mixer", ["qmix", "vdn", None])
def test_it_trains_and_reports(make, mixer, env):
    trainer = make(env, mixer=mixer)
    before = trainer.get_weights()["default_policy"]
    result = trainer.train()
    assert result["timesteps_total"] >= 60
    info = result["info"]
    assert info["num_target_updates"] >= 1
    stats = info["learner"]["default_policy"]["learner_stats"]
    assert {"loss", "td_error_abs", "q_taken_mean", "target_mean", "grad_gnorm", "cur_lr"} <= set(stats)
    assert all(np.isfinite(value) for value in stats.values())
    after = trainer.get_weights()["default_policy"]
    assert any((after[name] != before[name]).any() for name in after)
    assert any(name.startswith("mixer_") for name in after) == (mixer == "qmix")
    assert trainer.local_replay_buffer.stats()["policy_default_policy"]["num_steps"] == info["num_steps_sampled"]


@pytest.mark.parametrize(
    ("env", "mixer"), [(two_steps, "qmix"), (two_steps, None), (signals, "qmix")], ids=["qmix", "none", "seeded"]
)
def test_restored_trainer_goes_on_bit_for_bit(make, env, mixer, tmp_path):
    one, two = make(env, mixer=mixer), make(env, mixer=mixer)
    for _ in range(2):
        one.train()
    two.restore(one.save(str(tmp_path)))
    target = one.get_policy().target_network.get_weights()
    same(target, two.get_policy().target_network.get_weights())
    assert any((target[name] != array).any() for name, array in one.get_policy().get_weights().items())
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
        assert a["info"]["learner"] == b["info"]["learner"]
    same(one.get_weights()["default_policy"], two.get_weights()["default_policy"])


@pytest.mark.slow  # its steps in TensorFlow: tests/golden/test_qmix_against_numpy.py
@needs_tf
def test_tensorflow_trains(make):
    stats = make(signals, framework="tf").train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert {"loss", "td_error_abs", "q_taken_mean", "target_mean", "grad_gnorm", "cur_lr"} <= set(stats)


def test_the_same_seed_is_the_same_run(make):
    one, two = make(signals), make(signals)
    for _ in range(2):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
        assert a["info"]["learner"] == b["info"]["learner"]


@pytest.mark.parametrize("terminates", [True, False])
def test_episodes_are_whole_and_their_ends_are_kept_apart(make, terminates):
    trainer = make(signals, env_config={"length": 5, "terminates": terminates}, num_envs_per_worker=2, gamma=0.9)
    rows = trainer.workers.local_worker().sample().policy_batches["default_policy"]
    assert set(rows["seq_lens"].tolist()) == {5}
    assert (rows["state_in_0"] == 0).all()
    assert rows["state_in_0"].shape == (len(rows["seq_lens"]), 3, 8)
    assert rows["actions"].shape == (rows.count, 3)
    discounts = rows["discounts"].reshape(-1, 5)
    np.testing.assert_allclose(discounts[:, :-1], 0.9)
    np.testing.assert_allclose(discounts[:, -1], 0.0 if terminates else 0.9)


def test_fragments_of_episodes_begin_with_the_state_there(make):
    trainer = make(signals, env_config={"length": 10}, batch_mode="truncate_episodes", rollout_fragment_length=4)
    worker = trainer.workers.local_worker()
    worker.sample()
    rows = worker.sample().policy_batches["default_policy"]
    assert (rows["state_in_0"][0] != 0).any()
    trainer.train()


def test_single_rewards_are_learned_from_without_a_mixer(make):
    trainer = make(signals, mixer=None)
    rows = trainer.workers.local_worker().sample().policy_batches["default_policy"]
    np.testing.assert_allclose(rows["member_rewards"].sum(1), rows["rewards"])
    assert len(np.unique(rows["member_rewards"])) > 1
    trainer.train()
    clipped = make(signals, mixer=None, clip_rewards=0.25).workers.local_worker().sample()
    assert np.unique(clipped.policy_batches["default_policy"]["member_rewards"]).tolist() == [0.0, 0.25]
    from rlframe.agents.qmix.qmix_policy import member_rewards

    alone = SampleBatch({"rewards": np.array([2.0, 3.0]), "infos": np.array([{}, {"_group_rewards": [1.0, 2.0]}])})
    assert member_rewards(alone, 2).tolist() == [[2.0, 2.0], [1.0, 2.0]], "the group's reward where there are no others"


def test_actions_are_asked_for_with_state(make):
    trainer = make(signals)
    trainer.train()
    env = signals()
    obs, _ = env.reset(seed=1)
    state = trainer.get_policy().get_initial_state()
    assert [part.shape for part in state] == [(3, 8)]
    for _ in range(4):
        action, state, _ = trainer.compute_single_action(obs["team"], state, explore=False)
        assert env.action_space.contains(action)
        obs, *_ = env.step({"team": action})
        obs = {"team": obs["team"]}
    actor = trainer.make_actor(explore=False)
    obs, _ = env.reset(seed=1)
    assert env.action_space.contains(actor.act(obs["team"]))


def test_a_policy_made_by_hand_takes_the_environments_own_space(make):
    trainer, env = make(signals), signals()
    trainer.train()
    policy = QMixTorchPolicy(env.observation_space, env.action_space, trainer.config)
    policy.set_state(trainer.get_policy().get_state())
    flat = get_preprocessor(env.observation_space)(env.observation_space).transform(env.reset(seed=1)[0]["team"])
    mine, theirs = (
        one.compute_single_action(flat, one.get_initial_state(), explore=False)
        for one in (policy, trainer.get_policy())
    )
    np.testing.assert_equal(mine[:2], theirs[:2])


def test_evaluation_is_greedy(make):
    trainer = make(signals, evaluation_interval=1, evaluation_num_episodes=3)
    result = trainer.train()["evaluation"]
    assert result["episodes_this_iter"] == 3
    assert len(set(result["hist_stats"]["episode_lengths"])) == 1


def test_groups_may_have_policies_of_their_own(make):
    def env(_):
        return Signals().with_agent_groups({"pair": ["x", "y"], "one": ["z"]})

    multiagent = {"policies": {"p", "q"}, "policy_mapping_fn": lambda agent: "p" if agent == "pair" else "q"}
    trainer = make(env, multiagent=multiagent)
    learner = trainer.train()["info"]["learner"]
    assert set(learner) == {"p", "q"}
    assert trainer.get_policy("p").layout.n_agents == 2
    assert trainer.get_policy("q").layout.n_agents == 1
    assert trainer.train()["policy_reward_mean"].keys() == {"p", "q"}


def test_updates_derive_a_trainer(make):
    derived = QMixTrainer.with_updates(name="MyQMIX", default_config={**DEFAULT_CONFIG, "mixer": "vdn", "mine": 3})
    trainer = make(cls=derived, mine=4)
    assert (trainer.config["mixer"], trainer.config["mine"]) == ("vdn", 4)
    trainer.train()


def test_old_names_of_keys_are_understood(make):
    with pytest.warns(FutureWarning) as noted:
        trainer = make(grad_norm_clipping=3.0, buffer_size=7)
    assert (trainer.config["grad_clip"], trainer.config["replay_buffer_config"]["capacity"]) == (3.0, 7)
    assert trainer.local_replay_buffer.capacity == 7
    assert {"grad_norm_clipping", "buffer_size"} <= {word for note in noted for word in str(note.message).split()}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mixer": "sum"}, "mixer: got 'sum' .*wanted one of 'qmix', 'vdn' or None"),
        ({"replay_buffer_config": {"type": "LocalReplayBuffer"}}, "whole episodes or sequences.*set 'EpisodeReplayBuf"),
        ({"replay_buffer_config": None}, "type=None is for single rows"),
        ({"optim_eps": 0.0}, "optim_eps"),
    ],
)
def test_wrong_configs_are_named(make, wrong, message):
    with pytest.raises(ConfigError, match=message):
        make(**wrong)


@pytest.mark.parametrize("env", ["CartPole-v1", lambda _: TwoStepGame()], ids=["one agent", "no groups"])
def test_agents_that_are_not_grouped_are_told_how(make, env):
    with pytest.raises(UnsupportedSpaceException, match=r"Group the agents: env.with_agent_groups\(\{"):
        make(env)


def test_keys_that_nothing_reads_are_named_once(make, caplog):
    class More(Signals):
        def __init__(self, config=None):
            super().__init__(config)
            more = {**self.observation_space.spaces, "avail_actions": gym.spaces.MultiBinary(3)}
            self.observation_space = gym.spaces.Dict(more)

        def _obs(self):
            return {a: {**obs, "avail_actions": np.ones(3, np.int8)} for a, obs in super()._obs().items()}

    make(lambda _: More().with_agent_groups({"team": ["x", "y", "z"]}))
    assert "'avail_actions'" in caplog.text


def test_the_replay_mode_of_several_agents_is_refused():
    with pytest.raises(ConfigError, match="a group is one agent here"):
        QMixTrainer({"multiagent": {"replay_mode": "lockstep"}}, env=two_steps)


def test_keys_of_other_networks_are_remarked_on():
    config = {"model": {"fcnet_hiddens": [13]}}
    with pytest.warns(UserWarning, match="has no effect on QMIX's recurrent network; set model.lstm_cell_size"):
        QMixTrainer.merge_trainer_configs(QMixTrainer.get_default_config(), config)


def test_buffer_of_episodes_is_not_for_rows():
    with pytest.raises(ConfigError, match="is for whole episodes"):
        DQNTrainer({"replay_buffer_config": {"type": "EpisodeReplayBuffer"}}, env="CartPole-v1")


def test_policy_in_another_trainers_table_has_the_keys_of_its_algorithm():
    table = {"team": PolicySpec(QMixTorchPolicy)}
    multiagent = {"policies": table, "policy_mapping_fn": lambda agent_id: "team", "policies_to_train": []}
    trainer = PPOTrainer({"num_workers": 0, "multiagent": multiagent}, env=two_steps)
    assert trainer.get_policy("team").config["mixer"] == "qmix"
    trainer.stop()
