"""Policies that wait on disk: who is in memory, and that all of them come back as they were."""

import copy
import gc
import os
import weakref

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.a3c import A2CTrainer
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.cli.patience import reduce_learning_rate
from rlframe.evaluation.rollout_worker import PolicyMap
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.policy import Policy, PolicySpec
from rlframe.policy.waiting_policies import rebuilder
from rlframe.utils.errors import ConfigError
from tests.helpers.frameworks import needs_tf

SPACES = (gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Discrete(2))


class Counting(Policy):
    """Counts what it is told."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.counts = np.zeros(3)
        self.heard = None

    def get_state(self):
        return {**super().get_state(), "counts": self.counts.copy()}

    def set_state(self, state):
        super().set_state(state)
        self.counts = state["counts"]

    def on_global_var_update(self, global_vars):
        super().on_global_var_update(global_vars)
        self.heard = global_vars["timestep"]


def attach(policy):
    policy.exploration = policy._create_exploration()


def make(names, capacity, policy_class=Counting, cache=None):
    table = PolicyMap(capacity, cache)
    for name in names:
        arguments = (*SPACES, {"seed": 1})
        policy = policy_class(*arguments)
        attach(policy)
        table.add(name, policy, rebuilder(policy_class, arguments, attach))
    return table


def test_the_longest_unused_wait():
    table = make("abcd", 2)
    assert table.in_memory == ["c", "d"]
    _ = table["c"].counts
    assert table.in_memory == ["d", "c"]
    assert table["a"].counts.sum() == 0  # brings a back
    assert table.in_memory == ["c", "a"]
    assert list(table) == list("abcd")
    assert "b" in table
    assert table.get("e") is None


def test_who_kept_a_policy_has_the_policy():
    table = make("abc", 1)
    a, b = dict.__getitem__(table, "a"), dict.__getitem__(table, "b")
    assert repr(a) == "<policy 'a', waiting on disk>"
    a.counts[0] = 7.0  # reaches it on disk
    assert table.in_memory == ["a"]
    b.counts += 1.0
    assert isinstance(a, Counting)
    assert table["a"] is a
    np.testing.assert_array_equal(a.counts, [7.0, 0.0, 0.0])
    np.testing.assert_array_equal(table["b"].counts, 1.0)


def test_what_waits_is_not_in_memory():
    table = make("ab", 1)
    array = weakref.ref(table["a"].counts)
    assert array() is not None
    _ = table["b"].counts
    gc.collect()
    assert array() is None


def test_random_streams_go_on():
    mine, other = make("ab", 1), make("ab", 2)
    for _ in range(3):
        for name in "ab":
            assert mine[name]._action_rng.random() == other[name]._action_rng.random()


def test_what_was_missed_is_heard_later():
    table = make("ab", 1)
    table.update_global_vars({"timestep": 50})
    assert table["b"].heard == 50
    assert table["a"].heard == 50
    assert table["a"].global_timestep == 50


def test_files_go_with_the_policy_and_with_the_map(tmp_path):
    table = make("abc", 1, cache=str(tmp_path))
    (folder,) = tmp_path.iterdir()
    assert len(os.listdir(folder)) == 2
    removed = table.pop("a")
    assert len(os.listdir(folder)) == 1
    with pytest.raises(RuntimeError, match="'a' waited on disk and went with its removal"):
        removed.get_weights()
    waiting = table["b"]
    table.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match=r"'b' waited on disk and went with its trainer.*policy_map_capacity"):
        waiting.get_weights()
    assert table["c"].counts.sum() == 0  # was in memory
    table.close()


def test_files_go_with_a_map_that_nobody_closed(tmp_path):
    table = make("ab", 1, cache=str(tmp_path))
    assert list(tmp_path.iterdir())
    del table
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"policy_map_cache: got .*file"):
        PolicyMap(1, str(tmp_path / "file"))


class Untold(Counting):
    def get_state(self):
        return {**super().get_state(), "what": object()}


def test_state_that_cannot_be_written_is_named():
    with pytest.raises(ConfigError, match=r"policy_map_capacity: got 1, and policy 'a'.*state.what"):
        make("ab", 1, Untold)


class Slotted(Counting):
    __slots__ = ("more",)


def test_policies_of_no_plain_class_stay():
    table = make("ab", 1, Slotted)
    assert table.in_memory == ["a", "b"]
    table["c"] = Counting(*SPACES, {"seed": 1})
    assert table.in_memory == ["a", "b", "c"]
    assert rebuilder(lambda *arguments: Counting(*arguments), (), attach) is None


# --- under a trainer ---------------------------------------------------------------------------------------------

SIX = [f"p{number}" for number in range(6)]
BASE = {
    "num_workers": 0, "seed": 4, "min_iter_time_s": 0, "log_sys_usage": False, "model": {"fcnet_hiddens": [8]},
    "env_config": {"num_agents": 3}, "rollout_fragment_length": 30,
}  # fmt: skip
PPO = {"train_batch_size": 80, "sgd_minibatch_size": 40, "num_sgd_iter": 2, "rollout_fragment_length": 80}
DQN = {"train_batch_size": 16, "learning_starts": 40, "timesteps_per_iteration": 80, "n_step": 2,
       "target_network_update_freq": 40, "rollout_fragment_length": 20}  # fmt: skip
NOISE = {"exploration_config": {"type": "ParameterNoise"}, "batch_mode": "complete_episodes"}


def league(capacity, **more):
    """Three agents, six policies: each episode has others."""
    mapping = lambda agent, episode: SIX[(2 * agent + episode.episode_id) % 6]  # noqa: E731
    multiagent = {"policies": set(SIX), "policy_mapping_fn": mapping, "policy_map_capacity": capacity, **more}
    return {"multiagent": multiagent}


def assert_equal(one, two):
    for pid, weights in one.get_weights().items():
        for name, array in weights.items():
            np.testing.assert_array_equal(array, two.get_weights()[pid][name], err_msg=f"{pid} {name}")


@pytest.mark.parametrize(
    ("cls", "config"),
    [pytest.param(DQNTrainer, {**DQN, **NOISE}, marks=pytest.mark.slow),
     pytest.param(PPOTrainer, {**PPO, "observation_filter": "MeanStdFilter", "evaluation_interval": 1,
                               "evaluation_num_episodes": 1}, marks=pytest.mark.slow)],
    ids=["dqn-noise", "ppo-evaluation"],
)  # fmt: skip
def test_a_league_trains_alike_with_three_policies_in_memory(cls, config, tmp_path):
    small, large = (
        cls(copy.deepcopy({**BASE, **config, **league(capacity)}), env=MultiAgentCartPole) for capacity in (3, 100)
    )
    table = small.workers.local_worker().policy_map
    for _ in range(2):
        a, b = small.train(), large.train()
        assert len(table.in_memory) <= 3
        assert a["hist_stats"] == b["hist_stats"]
        if "evaluation" in a:
            assert a["evaluation"]["hist_stats"] == b["evaluation"]["hist_stats"]
    assert len(a["policy_reward_mean"]) > 3
    assert_equal(small, large)
    # All of them are in a checkpoint, wherever they are, and go on from it.
    other = cls(copy.deepcopy({**BASE, **config, **league(3)}), env=MultiAgentCartPole)
    other.restore(small.save(str(tmp_path)))
    assert other.train()["hist_stats"] == large.train()["hist_stats"]
    assert_equal(other, large)
    for trainer in (small, large, other):
        trainer.stop()


@needs_tf
@pytest.mark.parametrize(
    ("cls", "own"), [(PGTrainer, {}), pytest.param(DQNTrainer, DQN, marks=pytest.mark.slow)], ids=["PG", "DQN"]
)
def test_traced_policies_come_back_alike(cls, own):
    def run(capacity):
        multiagent = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent: "ab"[agent % 2],
                      "policy_map_capacity": capacity}  # fmt: skip
        config = {**own, "framework": "tf", "env_config": {"num_agents": 1}, "multiagent": multiagent}
        trainer = cls({**BASE, **config}, env=MultiAgentCartPole)
        trainer.train()
        for policy_id in "ab":
            trainer.get_policy(policy_id).get_weights()
        trainer.train()
        return trainer

    assert_equal(run(1), run(2))


def test_policies_come_and_go_with_one_in_memory(tmp_path):
    config = {**BASE, **PPO, "multiagent": {
        "policies": {"main"}, "policy_mapping_fn": lambda agent: "main", "policy_map_capacity": 1,
        "policy_map_cache": str(tmp_path / "cache"),
    }}  # fmt: skip
    trainer = PPOTrainer(config, env=MultiAgentCartPole)
    trainer.train()
    past = trainer.add_policy("past", policy_mapping_fn=lambda agent: ["main", "past"][agent % 2],
                              policies_to_train=["main"])  # fmt: skip
    past.set_weights(trainer.get_policy("main").get_weights())  # asking for main sends past to the disk, and back
    np.testing.assert_array_equal(
        past.get_weights()["hidden_0.weight"], trainer.get_policy("main").get_weights()["hidden_0.weight"]
    )
    trainer.workers.local_worker().runner.restart()
    assert set(trainer.train()["info"]["learner"]) == {"main"}
    assert len(trainer.workers.local_worker().policy_map.in_memory) == 1
    trainer.remove_policy("past", policy_mapping_fn=lambda agent: "main")
    trainer.train()
    trainer.stop()
    assert not list((tmp_path / "cache").iterdir())


def by_cutting(trainer):
    reduce_learning_rate(trainer, 0.1)


def by_callback(trainer):
    trainer.workers.foreach_policy(lambda policy, _: policy.set_learning_rate(0.001))


@pytest.mark.parametrize(
    ("cls", "config", "framework", "reduce"),
    [(A2CTrainer, {}, "torch", by_cutting), (PGTrainer, {}, "torch", by_callback),
     (DQNTrainer, DQN, "torch", by_cutting), pytest.param(A2CTrainer, {}, "tf", by_callback, marks=needs_tf)],
)  # fmt: skip
def test_a_reduced_learning_rate_outlives_the_disk(cls, config, framework, reduce):
    mapping = lambda agent: "ab"[agent % 2]  # noqa: E731
    multiagent = {"policies": set("ab"), "policy_mapping_fn": mapping, "policy_map_capacity": 1}
    # One agent: of two, each step would bring one policy from the disk, and send the other there.
    more = {"framework": framework, "lr": 0.01, "multiagent": multiagent, "env_config": {"num_agents": 1}}
    trainer = cls({**BASE, **config, **more}, MultiAgentCartPole)
    reduce(trainer)

    def rates():
        optimizers = (trainer.get_policy(name)._optimizers[0] for name in "ab")
        return [float(o.param_groups[0]["lr"] if framework == "torch" else o.learning_rate) for o in optimizers]

    assert rates() == pytest.approx([0.001] * 2)
    assert rates() == pytest.approx([0.001] * 2)  # all have come and gone again
    if reduce is by_cutting:  # a schedule, be it a constant one, takes over from a callback with the next step count
        assert trainer.get_policy("a").__dict__.get("cur_lr", 0.001) == pytest.approx(0.001)
        trainer.train()
        assert rates() == pytest.approx([0.001] * 2)
    trainer.stop()


class Heuristic(Policy):
    """Draws from its own stream."""

    def compute_actions(self, obs_batch, state_batches=None, **kwargs):
        return self._action_rng.integers(2, size=len(obs_batch)), [], {}


def test_policies_without_weights_wait_too():
    def run(capacity):
        table = {"a": PolicySpec(Heuristic), "b": PolicySpec(Heuristic), "c": PolicySpec()}
        multiagent = {"policies": table, "policy_mapping_fn": lambda agent: "abc"[agent % 3],
                      "policies_to_train": ["c"], "policy_map_capacity": capacity}  # fmt: skip
        trainer = PPOTrainer({**BASE, **PPO, "multiagent": multiagent}, env=MultiAgentCartPole)
        return trainer.train()["hist_stats"]

    assert run(1) == run(100)
