"""Names that RLlib 1.0 to 1.13 had and 1.9 had not: what they do."""

import json
import socket

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.env.base_env import BaseEnv
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.offline.json_format import to_line
from rlframe.utils.errors import DataError
from tests.helpers.multi_agent_envs import TURNS, Script
from tests.helpers.scripted import sample, trainer

SPACES = {"a": spaces.Discrete(3), "b": (spaces.MultiDiscrete([2, 2]), spaces.Box(-1, 1, (2, 1)))}
ROWS = {
    "b": (np.array([[1, 0], [0, 1]]), np.array([[[0.5], [0.25]], [[1.0], [-1.0]]], np.float32)),
    "a": np.array([2, 0]),
}
FLAT = [[0, 0, 1, 0, 1, 1, 0, 0.5, 0.25], [1, 0, 0, 1, 0, 0, 1, 1.0, -1.0]]


@pytest.mark.parametrize("module", ["numpy", "torch_utils", "tf_utils"])
def test_nested_inputs_lie_beside_each_other(module):
    flatten = pytest.importorskip(f"rlframe.utils.{module}").flatten_inputs_to_1d_tensor
    flat = np.asarray(flatten(ROWS, SPACES))
    assert flat.dtype == np.float32
    np.testing.assert_array_equal(flat, FLAT)
    in_time = {"b": tuple(part[:, None] for part in ROWS["b"]), "a": ROWS["a"][:, None]}
    np.testing.assert_array_equal(np.asarray(flatten(in_time, SPACES, time_axis=True)), np.array(FLAT)[:, None])
    np.testing.assert_array_equal(np.asarray(flatten((ROWS["a"][:, None], ROWS["b"][1]))), [[2, 0.5, 0.25], [0, 1, -1]])


def test_callbacks_ask_which_kind_their_environments_are():
    from rlframe.env.base_env import _MultiAgentEnvToBaseEnv
    from rlframe.env.multi_agent_env import MultiAgentEnvWrapper
    from rlframe.env.vector_env import VectorEnvWrapper

    assert _MultiAgentEnvToBaseEnv is MultiAgentEnvWrapper
    seen = []

    class Asking(DefaultCallbacks):
        def on_episode_start(self, *, base_env, **kwargs):
            seen.append((isinstance(base_env, VectorEnvWrapper), isinstance(base_env, MultiAgentEnvWrapper)))

    policies = {"policies": {"one"}, "policy_mapping_fn": lambda agent: "one"}
    sample(TURNS, multiagent=policies, callbacks=Asking)
    trainer(None, env="CartPole-v1", callbacks=Asking).workers.local_worker().sample()
    assert (seen[0], seen[-1]) == ((False, True), (True, False))
    assert not isinstance("CartPole-v1", VectorEnvWrapper)


def test_environments_are_made_to_be_polled_by_their_old_classes():
    from rlframe.env.base_env import _MultiAgentEnvToBaseEnv

    made = []

    def make(index):
        made.append(index)
        return Script({"script": TURNS})

    polled = _MultiAgentEnvToBaseEnv(make, [], 2)
    assert isinstance(polled, BaseEnv)
    assert (made, polled.num_envs) == ([0, 1], 2)
    assert set(polled.poll()[0]) == {0, 1}
    given = [Script({"script": TURNS}), Script({"script": TURNS})]
    assert _MultiAgentEnvToBaseEnv(make, given, 2).envs == given
    assert made == [0, 1]


def test_batches_are_compared_column_by_column():
    from rlframe.utils.test_utils import check_same_batch

    one = SampleBatch({"obs": [1.0, 2.0], "unroll_id": [3, 3]})
    check_same_batch(one, SampleBatch({"obs": [1.0, 2.0]}))
    with pytest.raises(AssertionError, match="unroll_id"):
        check_same_batch(one, SampleBatch({"obs": [1.0, 2.0], "unroll_id": [3, 4]}))
    with pytest.raises(AssertionError, match="'obs'"):
        check_same_batch(one, SampleBatch({"obs": [1.0, 2.5]}))
    with pytest.raises(AssertionError, match="a SampleBatch and a MultiAgentBatch"):
        check_same_batch(one, MultiAgentBatch({"p": one}, 2))
    with pytest.raises(AssertionError, match="keys are"):
        check_same_batch(MultiAgentBatch({"p": one}, 2), MultiAgentBatch({"q": one}, 2))


def test_a_line_of_a_file_is_a_batch():
    from rlframe.offline.json_reader import from_json_data

    line = json.loads(to_line(SampleBatch({"obs": np.eye(2, dtype=np.float32), "rewards": [1.0, 2.0]}), ["obs"]))
    batch = from_json_data(line, None)
    np.testing.assert_array_equal(batch["obs"], np.eye(2))
    assert batch["rewards"].tolist() == [1.0, 2.0]
    with pytest.raises(DataError, match='"type" is None'):
        from_json_data({"obs": [1]}, None)


@pytest.mark.parametrize("framework", ["tf", "torch"])
def test_distances_are_encoded_from_the_farthest_on(framework):
    module = pytest.importorskip(f"rlframe.models.{framework}.attention_net")
    encoded = np.asarray(module.relative_position_embedding(3, 4))
    wanted = [[np.sin(d), np.sin(d / 100), np.cos(d), np.cos(d / 100)] for d in (2, 1, 0)]
    np.testing.assert_allclose(encoded, wanted, rtol=1e-6)


def test_vtraces_trajectories_lose_their_next_observations():
    from rlframe.agents.impala.vtrace_tf_policy import postprocess_trajectory

    assert set(postprocess_trajectory(None, SampleBatch({"obs": [1], "new_obs": [2]}))) == {"obs"}


def test_functions_that_moved_say_where_to(caplog):
    from rlframe.utils.deprecation import moved_function

    with caplog.at_level("WARNING", logger="rlframe"):
        assert moved_function(json.dumps) is json.dumps
    assert "json.dumps" in caplog.text


TWO = {"policies": {"main", "still"}, "policy_mapping_fn": lambda agent_id, *args, **kwargs: "main"}


def test_environments_tell_of_their_agents_and_draw_from_their_spaces():
    several = trainer(None, env=MultiAgentCartPole, env_config={"num_agents": 2}, multiagent=TWO)
    base_env = several.workers.local_worker().async_env
    assert base_env.get_agent_ids() == {0, 1}
    obs, actions = base_env.observation_space_sample(), base_env.action_space_sample([1])
    assert ({*obs}, {*obs[0]}, {*actions[0]}) == ({0}, {0, 1}, {1})
    assert base_env.observation_space_contains(obs)
    assert not base_env.action_space_contains({0: {1: 2}})

    rock_paper = pytest.importorskip("pettingzoo.classic.rps_v2", reason="PettingZoo is not installed")
    players = trainer(None, env=lambda config: rock_paper.parallel_env()).workers.local_worker().async_env
    assert players.get_agent_ids() == {"player_0", "player_1"}  # PettingZoo's own, which is no MultiAgentEnv
    actions = players.action_space_sample()
    assert {*actions[0]} == {"player_0", "player_1"}
    assert players.action_space_contains(actions)

    single = trainer(None, env="CartPole-v1", num_envs_per_worker=2).workers.local_worker().async_env
    (agent,) = single.get_agent_ids()
    obs = single.observation_space_sample()
    assert {*obs} == {0, 1}
    assert single.observation_space_contains(obs)
    assert not single.action_space_contains({1: {agent: 2}})


def test_policies_begin_with_the_state_they_are_added_with():
    made = trainer(TURNS, multiagent=TWO)
    main = made.get_policy("main")
    added = made.add_policy("copy", policy_state=main.get_state())
    np.testing.assert_equal(added.get_weights(), main.get_weights())
    worker = made.workers.local_worker()
    again = worker.add_policy(policy_id="again", policy_cls=type(main), policy_state=main.get_state())
    np.testing.assert_equal(again.get_weights(), main.get_weights())
    worker.set_is_policy_to_train(["copy"])
    assert [made.workers.is_policy_to_train(policy) for policy in ("main", "copy")] == [False, True]


def test_policies_are_reached_by_a_function():
    policy = trainer(None, env="CartPole-v1").get_policy()
    assert policy.apply(lambda given, more: (given is policy, more), 3) == (True, 3)
    assert policy.get_host() == socket.gethostname()


def test_weights_come_from_a_worker_of_another_set():
    one, other = (trainer(None, env="CartPole-v1", seed=seed) for seed in (1, 2))
    other.workers.sync_weights(from_worker=one.workers.local_worker())
    np.testing.assert_equal(other.get_weights(), one.get_weights())


def test_an_evaluation_lasts_as_long_as_a_function_of_rllib_113_says():
    made = trainer(None, env="CartPole-v1", evaluation_num_episodes=10)
    assert made.evaluate(duration_fn=lambda done: 3 - done)["evaluation"]["episodes_this_iter"] == 3
