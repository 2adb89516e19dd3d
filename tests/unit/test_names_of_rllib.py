"""Names that RLlib's packages export, and what stands behind them."""

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation import SampleBatchBuilder
from rlframe.evaluation.observation_function import ObservationFunction
from tests.helpers.multi_agent_envs import TURNS
from tests.helpers.scripted import sample


def test_plans_find_learner_threads_and_the_old_name_of_the_operator():
    from rlframe.execution import LearnerThread, MultiGPULearnerThread, MultiGPUTrainOneStep, TrainTFMultiGPU

    assert TrainTFMultiGPU is MultiGPUTrainOneStep
    assert issubclass(MultiGPULearnerThread, LearnerThread)


def test_pettingzoos_environments_are_where_rllib_has_them():
    from rlframe.env import ParallelPettingZooEnv, PettingZooEnv
    from rlframe.env.wrappers import pettingzoo_env as module

    assert (PettingZooEnv, ParallelPettingZooEnv) == (module.PettingZooEnv, module.ParallelPettingZooEnv)


def test_rows_become_a_batch():
    builder = SampleBatchBuilder()
    for step in range(3):
        builder.add_values(obs=np.full(2, step, np.float32), actions=step, infos={"step": step})
    builder.add_batch(SampleBatch({"obs": np.ones((2, 2), np.float32), "actions": [7, 8], "infos": [{}, {}]}))
    assert builder.count == 5
    with pytest.raises(ValueError, match=r"columns \['obs'\], wanted \['actions', 'infos', 'obs'\]"):
        builder.add_values(obs=np.zeros(2))
    batch = builder.build_and_reset()
    assert batch["actions"].tolist() == [0, 1, 2, 7, 8]
    assert batch["obs"].shape == (5, 2)
    assert batch["infos"][2] == {"step": 2}
    assert (builder.count, len(builder.build_and_reset())) == (0, 0)


def test_an_observation_function_may_be_an_object():
    class Doubled(ObservationFunction):
        def __call__(self, agent_obs, worker, base_env, policies, episode, **kw):
            return {agent: 2 * obs for agent, obs in agent_obs.items()}

    multiagent = {"policies": {"one"}, "policy_mapping_fn": lambda agent: "one"}
    plain, _ = sample(TURNS, multiagent=multiagent)
    doubled, _ = sample(TURNS, multiagent={**multiagent, "observation_fn": Doubled()})
    np.testing.assert_array_equal(doubled.policy_batches["one"]["obs"], 2 * plain.policy_batches["one"]["obs"])
    with pytest.raises(NotImplementedError, match="defines __call__"):
        ObservationFunction()({}, None, None, {}, None)


def test_copies_of_an_environment_of_the_old_contract_side_by_side():
    from rlframe.env.multi_agent_env import make_multi_agent

    class Old:
        observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

        def reset(self):
            self.t = 0
            return np.zeros(2, np.float32)

        def step(self, action):
            self.t += 1
            return np.ones(2, np.float32), float(action), self.t == 2, {}

    env = make_multi_agent(lambda config: Old())({"num_agents": 2})
    obs = env.reset(seed=1)
    assert set(obs) == {0, 1}
    assert isinstance(env.agents[0], Old)
    _, rewards, dones, _ = env.step({0: 1, 1: 0})
    assert (rewards, dones["__all__"], env.dones) == ({0: 1.0, 1: 0.0}, False, set())
    assert env.step({0: 1, 1: 0})[2]["__all__"]
    assert env.dones == {0, 1}
