"""AlphaZero: a tree by hand and by an oracle, ranked rewards, the loss, sampling, resuming, masks, errors."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.alpha_zero import MCTS, AlphaZeroTorchPolicy, AlphaZeroTrainer
from rlframe.agents.alpha_zero.alpha_zero import LateReplay
from rlframe.agents.alpha_zero.mcts import Simulator
from rlframe.agents.registry import get_trainer_class
from rlframe.data.sample_batch import SampleBatch
from rlframe.examples.env.cartpole_of_states import CartPoleOfStates
from rlframe.models.preprocessors import DictFlatteningPreprocessor
from rlframe.utils.errors import ConfigError, EnvError, UnsupportedSpaceException

SEARCH = {"num_simulations": 4, "temperature": 1.0}
SMALL = {
    "seed": 3, "num_workers": 0, "log_sys_usage": False, "rollout_fragment_length": 8, "train_batch_size": 16,
    "sgd_minibatch_size": 8, "num_sgd_iter": 2, "learning_starts": 8, "lr": 1e-2, "mcts_config": SEARCH,
    "model": {"fcnet_hiddens": [8]}, "ranked_rewards": {"num_init_rewards": 5, "percentile": 50.0},
}  # fmt: skip
NO_NOISE = {
    "puct_coefficient": 1.0, "temperature": 1.0, "dirichlet_epsilon": 0.25, "dirichlet_noise": 0.5,
    "argmax_tree_policy": False, "add_dirichlet_noise": False,
}  # fmt: skip


class Choices(gym.Env):
    """Pays for the word of choices made, when it is long enough; `forbidden` is an action never allowed."""

    def __init__(self, config=None):
        config = dict(config or {})
        self.pays, self.length, self.forbidden = config.get("pays"), config.get("length", 2), config.get("forbidden")
        self.observation_space = gym.spaces.Dict(
            {"obs": gym.spaces.Box(-1, 3, (4,), np.float32), "action_mask": gym.spaces.Box(0, 1, (3,), np.float32)}
        )
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return self.set_state(()), {}

    def step(self, action):
        assert action != self.forbidden
        over = len(self.word) + 1 >= self.length
        obs = self.set_state((*self.word, int(action)))
        reward = 0.0 if not over else self.pays[self.word] if self.pays else float(sum(self.word))
        return obs, reward, over, False, {}

    def get_state(self):
        return self.word

    def set_state(self, state):
        self.word = state
        mask = np.ones(3, np.float32)
        if self.forbidden is not None:
            mask[self.forbidden] = 0
        return {"obs": np.array([*state, *[-1] * (4 - len(state))], np.float32), "action_mask": mask}


def make(env=Choices, **overrides):
    return AlphaZeroTrainer({**SMALL, **overrides}, env=env)


def search(env, evaluate, rng=None, **options):
    simulator = Simulator(env, 0)
    made = MCTS(simulator, evaluate, float, {**NO_NOISE, **options}, rng or np.random.default_rng(0))
    env.reset()
    return made, simulator.root(env.get_state(), 0.0)


def test_a_tree_by_hand():
    env = Choices({"pays": {(0, 0): 0.0, (0, 1): 1.0, (1, 0): -1.0, (1, 1): 0.5}})
    known = {(): ((0.6, 0.4, 0), 0.0), (0,): ((0.5, 0.5, 0), 0.2), (1,): ((0.9, 0.1, 0), 0.5)}

    def evaluate(obs):
        priors, value = known[tuple(int(x) for x in obs["obs"] if x >= 0)]
        return np.array(priors), value

    # Q + P √(1 + ΣN) / (1 + N) at the root: 0.6, 0.4; 0.2 + 0.424, 0.566; 0.1 + 0.346, 0.693; 0.1 + 0.4, 0.5 + 0.4;
    # 0.1 + 0.447, −0.25 + 0.298. So: 0 (0.2), 0 and 0 (0), 1 (0.5), 1 and 0 (−1), 0 and, of 0.354 and 0.707, 1 (1).
    made, root = search(env, evaluate, num_simulations=5)
    policy, action, node = made.compute_action(root, explore=False)
    assert (root.visits.tolist(), root.values.tolist()) == ([3, 2, 0], pytest.approx([1.2, -0.5, 0.0]))
    assert (policy.tolist(), action) == (pytest.approx([0.6, 0.4, 0.0]), 0)
    assert (node.state, node.visits.tolist(), node.values.tolist()) == ((0,), [1, 1, 0], [0.0, 1.0, 0.0])
    made, root = search(env, evaluate, num_simulations=5, temperature=2.0)
    assert made.compute_action(root, explore=False)[0].tolist() == pytest.approx([9 / 13, 4 / 13, 0.0])


def by_oracle(pays, length, known, c, simulations):
    """The visits of the root's actions, by a search that keeps nothing but tables by word, and recurses."""
    asked, n, w = {()}, {}, {}

    def simulate(word):
        if len(word) == length:
            return pays[word]
        if word not in asked:
            asked.add(word)
            return known[word][1]
        total = 1 + sum(n.get((*word, a), 0) for a in range(3))

        def score(a):
            after = (*word, a)
            mean = w[after] / n[after] if after in n else 0.0
            return mean + c * known[word][0][a] * total**0.5 / (1 + n.get(after, 0))

        best = (*word, max(range(3), key=score))
        value = simulate(best)
        n[best], w[best] = n.get(best, 0) + 1, w.get(best, 0.0) + value
        return value

    for _ in range(simulations):
        simulate(())
    return [n.get((a,), 0) for a in range(3)]


def test_searches_of_random_trees_are_the_oracles():
    rng = np.random.default_rng(0)
    for _ in range(10):
        words = [tuple(int(x) for x in np.base_repr(i, 3).zfill(k)) if k else () for k in range(4) for i in range(3**k)]
        pays = {word: float(rng.normal()) for word in words if len(word) == 3}
        known = {word: (rng.dirichlet(np.ones(3)), float(rng.normal())) for word in words}
        made, root = search(
            Choices({"pays": pays, "length": 3}),
            lambda obs, known=known: known[tuple(int(x) for x in obs["obs"] if x >= 0)],
            num_simulations=40, puct_coefficient=1.7,
        )  # fmt: skip
        made.compute_action(root, explore=False)
        assert root.visits.tolist() == by_oracle(pays, 3, known, 1.7, 40)


def test_noise_is_at_the_root_and_never_on_what_is_forbidden():
    env = Choices({"forbidden": 1, "length": 3})
    priors = np.array([0.999, 0.0, 0.001])
    made, root = search(
        env,
        lambda _: (priors, 0.0),
        num_simulations=60,
        dirichlet_epsilon=1.0,
        dirichlet_noise=100.0,
        add_dirichlet_noise=True,
    )
    policy, _, _ = made.compute_action(root)
    assert root.visits[1] == 0
    assert policy[2] > 0.3
    np.testing.assert_array_equal(root.children[0].priors, priors)


def make_policy(space=None, actions=None, **overrides):
    config = {**AlphaZeroTrainer._default_config, **SMALL, **overrides}
    config["model"] = {**AlphaZeroTrainer._default_config["model"], "fcnet_hiddens": [8]}
    box = gym.spaces.Box(-1, 1, (2,), np.float32)
    return AlphaZeroTorchPolicy(space or box, actions or gym.spaces.Discrete(2), config)


def sampled(*episodes):
    """Rows of episodes, of (number, rewards)."""
    ids = np.concatenate([[number] * len(rewards) for number, rewards in episodes])
    return SampleBatch({"eps_id": ids, "rewards": np.concatenate([np.float32(rewards) for _, rewards in episodes])})


def test_outcomes_are_ranked_by_hand_and_travel_with_the_weights():
    options = {"enable": True, "percentile": 50.0, "buffer_max_length": 4, "initialize_buffer": False}
    policy, other = (make_policy(ranked_rewards=options, env=Choices) for _ in range(2))
    assert policy.ranked.worth(-9.0) == 1.0  # nothing is known
    rows = policy.postprocess_trajectory(sampled((7, [0, 1, 2]), (5, [-1.0]), (9, [1.0, 1.0])))
    assert rows["outcomes"].tolist() == [3, 3, 3, -1, 2, 2]
    policy.value_rows(rows)  # 3, -1 and 2 have the median 2
    assert rows["value_targets"].tolist() == [1, 1, 1, -1, 1, 1]
    for outcome in (10.0, 12.0):
        policy.ranked.add(outcome)
    assert [policy.ranked.worth(x) for x in (5.9, 6.0)] == [-1, 1]  # of 12, -1, 2, 10
    other.set_weights(policy.get_weights())
    assert [other.ranked.worth(x) for x in (5.9, 6.0)] == [-1, 1]
    plain = make_policy(ranked_rewards={**options, "enable": False}, env=Choices)
    plain.value_rows(rows)
    assert rows["value_targets"].tolist() == rows["outcomes"].tolist()


def test_the_loss_is_that_of_the_paper_on_allowed_actions():
    trainer = make(env_config={"forbidden": 1})
    policy = trainer.get_policy()
    obs = np.array([[1, 0, 1, 0.5, -0.5, 0, 0], [1, 0, 1, 2, 1, -1, -1]], np.float32)  # `action_mask` comes first
    batch = {"obs": obs, "mcts_policies": np.float32([[0.3, 0, 0.7], [1, 0, 0]]), "value_targets": np.float32([1, -1])}
    logits, values = policy.forward(obs)
    logp = logits[:, [0, 2]] - np.log(np.exp(logits[:, [0, 2]]).sum(1, keepdims=True))
    wanted = -(0.3 * logp[0, 0] + 0.7 * logp[0, 1] + logp[1, 0]) / 2, np.square(values - [1, -1]).mean()
    stats = policy.learn_on_batch(SampleBatch(batch))["learner_stats"]
    assert (stats["policy_loss"], stats["value_loss"]) == pytest.approx(wanted, 1e-5)
    assert stats["total_loss"] == pytest.approx(sum(wanted) / 2, 1e-5)


def test_rows_have_what_the_search_found_and_what_the_episode_brought():
    trainer = make(env_config={"forbidden": 2, "length": 4}, num_envs_per_worker=2)
    rows = trainer.workers.local_worker().sample()
    found = rows["mcts_policies"]
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    assert found[:, 2].max() == 0
    assert (found[np.arange(len(found)), rows["actions"]] > 0).all()
    for episode in rows.split_by_episode():
        assert set(episode["outcomes"].tolist()) == {episode["actions"].sum()}
    policy = trainer.get_policy()
    seen = {"obs": np.zeros(4, np.float32), "action_mask": np.array([0, 1, 0], np.float32)}
    assert trainer.compute_single_action(seen) == 1  # without an episode: the network's, on what is allowed
    assert policy.forward(policy._observed(seen)[None])[0].argmax() == 1


def test_it_finds_what_pays_most():
    trainer = make(ranked_rewards={"enable": False}, mcts_config={"num_simulations": 8, "puct_coefficient": 4.0})
    for _ in range(12):
        rewards = trainer.train()["hist_stats"]["episode_reward"]
    assert np.mean(rewards[:8]) < 3.5 < np.mean(rewards[-8:])  # of 4
    assert trainer.compute_single_action(Choices().reset()[0], explore=False) == 2


def test_a_restored_trainer_goes_on_bit_for_bit(tmp_path):
    one, two = make(), make(seed=4)
    for _ in range(2):
        one.train()
    two.restore(one.save(str(tmp_path)))
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
        assert a["info"]["learner"] == b["info"]["learner"]
    np.testing.assert_equal(one.get_weights(), two.get_weights())


def test_a_plan_without_replay_learns_from_what_was_sampled():
    trainer = make(simple_optimizer=True)
    assert trainer.local_replay_buffer is None
    assert trainer.train()["info"]["num_steps_trained"] >= 16
    buffer = LateReplay(2, 5, seed=0)
    batch = sampled((1, [0, 0, 0]))
    buffer.add_batch(batch)
    assert buffer.replay() is None
    buffer.add_batch(batch)
    assert buffer.replay() is batch


def test_a_pole_comes_back_to_the_state_it_was_in():
    env = CartPoleOfStates({"max_episode_steps": 9})
    env.reset(seed=0)
    env.step(1)
    state = env.get_state()
    steps = [env.step(action) for action in (0, 1, 1, 0, 1, 1, 1, 1)]
    assert [step[1:3] for step in steps] == [*[(0.0, False)] * 7, (9.0, True)]
    env.set_state(state)
    again = [env.step(action) for action in (0, 1, 1)]
    for one, other in zip(steps, again, strict=False):
        np.testing.assert_allclose(one[0]["obs"], other[0]["obs"])


def test_models_of_rllib_search_and_learn():
    from rlframe.contrib.alpha_zero.models.custom_torch_models import ActorCriticModel, ConvNetModel, DenseModel

    class Own(ActorCriticModel):
        def __init__(self, *args):
            super().__init__(*args)
            self.shared_layers = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU())
            self.actor_layers, self.critic_layers = torch.nn.Linear(6, 3), torch.nn.Linear(6, 1)

    for cls in (DenseModel, Own):
        trainer = make(model={"custom_model": cls}, framework="torch", env_config={"forbidden": 1})
        before = trainer.get_weights()["default_policy"]
        trainer.train()
        after = trainer.get_weights()["default_policy"]
        assert all((before[name] != after[name]).any() for name in before)
        priors, value = trainer.get_policy().model.compute_priors_and_value(Choices().reset()[0])
        assert (priors.shape, priors.sum(), value.shape) == ((3,), pytest.approx(1.0), ())
    boards = {"obs": gym.spaces.Box(0, 1, (2, 14, 14)), "action_mask": gym.spaces.Box(0, 1, (5,))}
    space = DictFlatteningPreprocessor(gym.spaces.Dict(boards)).observation_space
    config = {"custom_model_config": {"in_channels": 2, "feature_dim": 7}}
    model = ConvNetModel(space, gym.spaces.Discrete(5), 5, config, "boards")
    assert model.compute_priors_and_value(space.original_space.sample())[0].shape == (5,)


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(EnvError, match=r"has no get_state\(\) and set_state"):
        make(env="CartPole-v1").train()
    with pytest.raises(UnsupportedSpaceException, match="wanted a Discrete one: the search tries each action"):
        make_policy(actions=gym.spaces.Box(-1, 1, (2,)))
    for overrides, message in (
        ({"batch_mode": "truncate_episodes"}, "outcomes are those of whole episodes"),
        ({"model": {"use_lstm": True}}, "states out of their order"),
        ({"clip_rewards": True}, "the search counts rewards as they are"),
        ({"exploration_config": {"type": "Random"}}, "the search explores by mcts_config"),
        ({"mcts_config": {"num_simulations": 1}}, r"mcts_config.num_simulations: got 1 \(int\), wanted"),
        ({"multiagent": {"policies": {"a"}}}, "the search steps the whole environment"),
    ):
        with pytest.raises(ConfigError, match=message):
            make(**overrides)


def test_names_and_defaults_are_rllibs():
    from rlframe.contrib.alpha_zero.core.alpha_zero_trainer import DEFAULT_CONFIG
    from rlframe.contrib.alpha_zero.core.alpha_zero_trainer import AlphaZeroTrainer as Contributed
    from rlframe.contrib.alpha_zero.environments.cartpole import CartPole

    assert Contributed is AlphaZeroTrainer is get_trainer_class("contrib/AlphaZero") is get_trainer_class("AlphaZero")
    assert CartPole is CartPoleOfStates
    wanted = {
        "rollout_fragment_length": 200, "train_batch_size": 4000, "sgd_minibatch_size": 128, "num_sgd_iter": 30,
        "learning_starts": 1000, "buffer_size": 10_000, "lr": 5e-5, "batch_mode": "complete_episodes",
        "mcts_config": {
            "puct_coefficient": 1.0, "num_simulations": 30, "temperature": 1.5, "dirichlet_epsilon": 0.25,
            "dirichlet_noise": 0.03, "argmax_tree_policy": False, "add_dirichlet_noise": True,
        },
        "ranked_rewards": {
            "enable": True, "percentile": 75, "buffer_max_length": 1000, "initialize_buffer": True,
            "num_init_rewards": 100,
        },
    }  # fmt: skip
    assert {name: DEFAULT_CONFIG[name] for name in wanted} == wanted
