"""Several agents: which policy acts for whom, and policies that come and go."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.dqn import DQNTorchPolicy, DQNTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.policy import Policy, PolicySpec
from rlframe.utils.errors import ConfigError
from tests.helpers.frameworks import FRAMEWORKS, TORCH_FIRST
from tests.helpers.multi_agent_envs import COME_AND_GO, TURNS, Script
from tests.helpers.scripted import SMALL, sample, trainer


@pytest.mark.parametrize(
    "mapping",
    [
        lambda agent_id: f"p_{agent_id}",
        lambda agent_id, **kwargs: f"p_{agent_id}",
        lambda agent_id, episode, **kwargs: f"p_{agent_id}" if episode.episode_id >= 0 else "",
        lambda agent_id, episode, worker: f"p_{agent_id}" if worker.worker_index == 0 else "",
        lambda agent_id, e: f"p_{agent_id}" if e.env_id == 0 else "",
        lambda agent_id, e, worker: f"p_{agent_id}" if (e.env_id, worker.worker_index) == (0, 0) else "",
        lambda agent_id, e, **kwargs: f"p_{agent_id}" if (e.env_id, kwargs["worker"].worker_index) == (0, 0) else "",
        lambda agent_id, worker, **kwargs: f"p_{agent_id}" if worker.worker_index == kwargs["episode"].env_id else "",
        lambda agent_id, *args, **kwargs: f"p_{agent_id}" if args[0].env_id == 0 and kwargs["worker"] else "",
        lambda agent_id, *, episode, worker: f"p_{agent_id}" if worker.worker_index == episode.env_id else "",
    ],
)
def test_the_mapping_is_called_with_what_it_declares(mapping):
    batch, _ = sample(TURNS, multiagent={"policies": {"p_a", "p_b"}, "policy_mapping_fn": mapping})
    assert {pid: len(part) for pid, part in batch.policy_batches.items()} == {"p_a": 2, "p_b": 2}


def test_a_mapping_to_no_policy_names_agent_and_policies():
    multiagent = {"policies": {"one"}, "policy_mapping_fn": lambda agent_id: "two"}
    with pytest.raises(ConfigError, match=r"gave 'two' for agent 'a', wanted one of 'one'"):
        sample(TURNS, multiagent=multiagent)


def test_a_mapping_is_wanted_where_nothing_else_tells():
    with pytest.raises(ConfigError, match="policy_mapping_fn: got None"):
        trainer(TURNS, multiagent={"policies": ["one", "two"]})


class Heuristic(Policy):
    """Has no weights; always takes action 1."""

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, prev_reward_batch=None, **kwargs):
        return [1] * len(obs_batch), [], {}


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("to_train", [["learner"], "learner", lambda policy_id, batch: policy_id == "learner"])
def test_a_policy_without_weights_plays_beside_one_that_learns(framework, to_train):
    multiagent = {
        "policies": {"learner": PolicySpec(), "still": PolicySpec(), "fixed": (Heuristic, None, None, {})},
        "policy_mapping_fn": lambda agent_id: {0: "learner", 1: "fixed"}.get(agent_id, "still"),
        "policies_to_train": to_train,
    }
    made = trainer(
        None, PPOTrainer, MultiAgentCartPole, framework=framework, env_config={"num_agents": 3}, multiagent=multiagent,
        train_batch_size=40, rollout_fragment_length=20, sgd_minibatch_size=20, num_sgd_iter=2,
    )  # fmt: skip
    before = made.get_weights()
    result = made.train()
    after = made.get_weights()
    moved = {pid for pid in after if any((after[pid][name] != before[pid][name]).any() for name in after[pid])}
    assert moved == {"learner"}
    assert set(result["info"]["learner"]) == {"learner"}
    assert result["info"]["num_agent_steps_sampled"] > result["timesteps_total"]


def test_policies_have_configs_and_spaces_of_their_own():
    multiagent = {
        "policies": {"a": PolicySpec(config={"gamma": 0.5, "model": {"fcnet_hiddens": [7]}}), "b": None},
        "policy_mapping_fn": lambda agent_id: agent_id,
    }
    made = trainer(TURNS, multiagent=multiagent)
    assert made.get_policy("a").config["gamma"] == 0.5
    assert made.get_policy("a").get_weights()["hidden_0.weight"].shape == (7, 1)
    assert made.get_policy("b").get_weights()["hidden_0.weight"].shape == (4, 1)
    assert made.get_policy("a").config["model"]["fcnet_activation"] == "tanh"


class TwoKinds(Script):
    """Agents with spaces of their own."""

    observation_space = None
    action_space = None

    def __init__(self, config):
        super().__init__(config)
        boxes = (gym.spaces.Box(-9, 9, (1,), np.float32), gym.spaces.Box(-9, 9, (2,), np.float32))
        self.observation_spaces = dict(zip("ab", boxes, strict=True))
        self.action_spaces = {"a": gym.spaces.Discrete(2), "b": gym.spaces.Discrete(5)}

    def _numbers(self, obs):
        return {agent: np.full(self.observation_spaces[agent].shape, value, np.float32) for agent, value in obs.items()}


def test_policies_of_other_algorithms_have_the_keys_of_theirs():
    spec = {"mine": PolicySpec(), "other": PolicySpec(
        DQNTorchPolicy, config={"exploration_config": {"type": "EpsilonGreedy", "epsilon_timesteps": 7}})}  # fmt: skip
    mapping = lambda agent_id: "mine" if agent_id == 0 else "other"  # noqa: E731
    made = trainer(
        None, PPOTrainer, MultiAgentCartPole, env_config={"num_agents": 2}, sgd_minibatch_size=4, lr=0.25,
        multiagent={"policies": spec, "policy_mapping_fn": mapping, "policies_to_train": ["mine"]},
    )  # fmt: skip
    config = made.get_policy("other").config
    assert config["double_q"] is True  # what only DQN knows
    assert config["lr"] == 0.25  # what both know is the trainer's
    assert config["exploration_config"] == {"type": "EpsilonGreedy", "epsilon_timesteps": 7}
    assert "double_q" not in made.get_policy("mine").config
    assert set(made.train()["info"]["learner"]) == {"mine"}


def test_spaces_of_agents_are_found_through_the_mapping():
    multiagent = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent_id: agent_id}
    made = trainer(TURNS, env=TwoKinds, multiagent=multiagent)
    assert made.get_policy("b").action_space.n == 5
    batch = made.workers.local_worker().sample()
    assert batch.policy_batches["b"]["obs"].shape == (2, 2)


def test_agents_of_one_policy_need_one_space():
    with pytest.raises(ConfigError, match=r"different ones \(.*\); map agents of each kind to a policy of their own"):
        trainer(TURNS, env=TwoKinds)


def test_a_table_of_policies_on_an_environment_with_one_agent():
    multiagent = {"policies": {"mine"}, "policy_mapping_fn": lambda agent_id: "mine"}
    made = trainer(None, env="CartPole-v1", multiagent=multiagent, rollout_fragment_length=20, train_batch_size=20)
    result = made.train()
    assert result["timesteps_total"] == 20
    assert set(result["info"]["learner"]) == {"mine"}


def test_another_mapping_is_for_episodes_that_begin():
    multiagent = {"policies": {"one", "two"}, "policy_mapping_fn": lambda agent_id: "one"}
    made = trainer(COME_AND_GO, DQNTrainer, n_step=1, multiagent=multiagent, rollout_fragment_length=1)
    worker = made.workers.local_worker()
    worker.sample()
    worker.set_policy_mapping_fn(lambda agent_id: "two")
    worker.sample()  # here c comes
    worker.sample()
    assert {
        agent: policy for metric in worker.get_metrics() for agent, policy in metric.agent_rewards
    } == dict.fromkeys("abc", "one")
    for _ in range(3):
        worker.sample()
    assert {
        agent: policy for metric in worker.get_metrics() for agent, policy in metric.agent_rewards
    } == dict.fromkeys("abc", "two")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_policies_come_and_go(framework, tmp_path):
    def build():
        return trainer(
            None, env=MultiAgentCartPole, framework=framework, env_config={"num_agents": 2}, train_batch_size=40,
            rollout_fragment_length=20, multiagent={"policies": {"main"}, "policy_mapping_fn": lambda agent_id: "main"},
        )  # fmt: skip

    made = build()
    made.train()
    added = made.add_policy(
        "second", policy_mapping_fn=lambda agent_id: "main" if agent_id == 0 else "second", policies_to_train=["second"]
    )
    added.set_weights(made.get_policy("main").get_weights())
    made.workers.local_worker().runner.restart()
    result = made.train()
    assert set(result["info"]["learner"]) == {"second"}
    path = made.save(str(tmp_path))
    other = build()
    other.restore(path)
    for pid in ("main", "second"):
        for name, array in made.get_weights()[pid].items():
            np.testing.assert_array_equal(other.get_weights()[pid][name], array)
    with pytest.raises(ValueError, match="there is one already"):
        made.add_policy("second")
    made.remove_policy("second", policy_mapping_fn=lambda agent_id: "main", policies_to_train=["main"])
    assert set(made.train()["info"]["learner"]) == {"main"}
    with pytest.raises(KeyError, match="wanted one of main"):
        made.remove_policy("second")
    worker = made.workers.local_worker()
    worker.is_policy_to_train = lambda policy_id, batch=None: False  # a program's own
    worker.set_policies_to_train(["main"])
    assert worker.policies_to_train == ["main"]


def test_filters_are_of_each_policy():
    multiagent = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent_id: agent_id}
    made = trainer(TURNS, observation_filter="MeanStdFilter", multiagent=multiagent, rollout_fragment_length=4)
    worker = made.workers.local_worker()
    worker.sample()
    # Observations 1, 3 and the last, 5, and the first of the next episode; 2, 4 and 6.
    assert worker.filters["a"].rs.n == 4
    assert worker.filters["b"].rs.n == 3


def test_ppo_trains_a_policy_that_is_added_later():
    made = trainer(
        None, PPOTrainer, MultiAgentCartPole, env_config={"num_agents": 2}, train_batch_size=40, model=SMALL,
        rollout_fragment_length=20, sgd_minibatch_size=20, num_sgd_iter=1,
        multiagent={"policies": {"main"}, "policy_mapping_fn": lambda agent_id: "main"},
    )  # fmt: skip
    made.train()
    mapping = lambda agent_id: "main" if agent_id == 0 else "second"  # noqa: E731
    before = made.add_policy("second", policy_mapping_fn=mapping, policies_to_train=["main", "second"]).get_weights()
    made.workers.local_worker().runner.restart()
    assert set(made.train()["info"]["learner"]) == {"main", "second"}
    after = made.get_policy("second").get_weights()
    assert any(not np.array_equal(before[name], after[name]) for name in before)


def test_a_policy_may_be_kept_from_evaluation():
    made = trainer(
        None, env=MultiAgentCartPole, env_config={"num_agents": 2}, train_batch_size=40, rollout_fragment_length=20,
        evaluation_interval=1, evaluation_num_episodes=1,
        multiagent={"policies": {"main"}, "policy_mapping_fn": lambda agent_id: "main"},
    )  # fmt: skip
    made.add_policy("second", evaluation_workers=False)
    assert made.train()["evaluation"]["episodes_this_iter"] >= 1


def test_rows_of_a_removed_policy_are_not_learned_from():
    mapping = lambda agent_id: "main" if agent_id == 0 else "second"  # noqa: E731
    made = trainer(
        None, DQNTrainer, MultiAgentCartPole, env_config={"num_agents": 2}, train_batch_size=20, learning_starts=20,
        rollout_fragment_length=10, timesteps_per_iteration=20, model=SMALL,
        multiagent={"policies": {"main", "second"}, "policy_mapping_fn": mapping},
    )  # fmt: skip
    for _ in range(3):
        made.train()
    made.remove_policy("second", policy_mapping_fn=lambda agent_id: "main", policies_to_train=["main"])
    made.workers.local_worker().runner.restart()
    for _ in range(3):
        learned = made.train()["info"]["learner"]
    assert set(learned) == {"main"}
