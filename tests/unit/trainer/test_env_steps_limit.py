"""`env_steps_limit`: iterations of every algorithm end there, to within one round of sampling, and can go on."""

import numpy as np
import pytest

from rlframe.agents.pg import PGTorchPolicy
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.registry import ALGORITHMS
from rlframe.agents.trainer_template import build_trainer
from rlframe.cli.stop import StopCriterion
from rlframe.examples.env.cartpole_of_states import CartPoleOfStates
from rlframe.examples.env.known_rewards import CartPoleWrapper
from rlframe.examples.env.recommender_systems import InterestEvolutionRecSimEnv
from rlframe.examples.env.two_step_game import TwoStepGame
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.rollout_ops import ParallelRollouts
from tests.unit.agents.test_maddpg import MEETING, Meeting
from tests.unit.agents.test_mbmpo import SMALL_MBMPO

LIMIT = 70
LONG = {"seed": 0, "num_workers": 0, "min_iter_time_s": 10_000, "timesteps_per_iteration": 50_000}
MEMORY = {"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "fcnet_activation": "relu"}
SMALL_PPO = {
    "seed": 0, "num_workers": 0, "train_batch_size": 80, "rollout_fragment_length": 20, "sgd_minibatch_size": 40,
    "num_sgd_iter": 2, "model": {"fcnet_hiddens": [8]},
}  # fmt: skip


#: What differs from `LONG`, and the environment where it is no CartPole.
GIVEN = {
    "A3C": ({"sample_async": False}, "CartPole-v1"),
    "APEX_DDPG": ({}, "Pendulum-v1"),
    "DDPG": ({}, "Pendulum-v1"),
    "DREAMER": ({}, "Pendulum-v1"),
    "MADDPG": (MEETING, Meeting),
    "MAML": ({"use_meta_env": False}, "CartPole-v1"),
    "MBMPO": ({**SMALL_MBMPO, "rollout_fragment_length": 20}, CartPoleWrapper),
    "QMIX": ({}, lambda _: TwoStepGame().with_agent_groups({"team": [0, 1]})),
    "R2D2": ({"model": MEMORY}, "CartPole-v1"),
    "RNNSAC": ({"Q_model": MEMORY, "policy_model": MEMORY}, "CartPole-v1"),
    "SlateQ": ({"rollout_fragment_length": 20}, InterestEvolutionRecSimEnv),
    "TD3": ({}, "Pendulum-v1"),
    "contrib/AlphaZero": ({}, CartPoleOfStates),
    "contrib/MADDPG": (MEETING, Meeting),
}


def make(algorithm):
    config, env = GIVEN.get(algorithm, ({}, "CartPole-v1"))
    return ALGORITHMS[algorithm]()[0]({**config, **LONG}, env=env)


@pytest.mark.parametrize("algorithm", sorted({*ALGORITHMS} - {"CQL", "IQL", "TD3BC"}))  # which sample nothing
def test_an_iteration_ends_within_one_round_of_the_limit(algorithm):
    trainer = make(algorithm)
    trainer.env_steps_limit = LIMIT
    result = trainer.train()
    config = trainer.workers.local_worker().policy_config
    # A whole episode is 500 steps at most.
    fragment = 500 if config["batch_mode"] == "complete_episodes" else config["rollout_fragment_length"]
    round_of_sampling = fragment * trainer.config["num_envs_per_worker"]
    assert LIMIT <= result["timesteps_total"] < LIMIT + round_of_sampling
    assert StopCriterion(timesteps_total=LIMIT).reached(result)
    assert trainer.train()["timesteps_this_iter"] == 0
    trainer.stop()


def test_what_the_limit_cut_goes_on_as_if_it_had_not_been(tmp_path):
    whole, cut, restored = (PPOTrainer(SMALL_PPO, env="CartPole-v1") for _ in range(3))
    whole.train()
    cut.env_steps_limit = 50
    assert cut.train()["timesteps_total"] == 60  # three of the four fragments of a train batch
    restored.restore(cut.save(str(tmp_path)))
    for trainer in (cut, restored):
        trainer.env_steps_limit = None
        assert trainer.train()["timesteps_total"] == 80
        for name, array in whole.get_weights()["default_policy"].items():
            np.testing.assert_array_equal(array, trainer.get_weights()["default_policy"][name])


def test_a_plan_without_a_report_at_its_end_gives_whole_iterations():
    def execution_plan(workers, config):
        plan: LocalIterator = ParallelRollouts(workers).batch(2)
        return plan.for_each(lambda batches: {"rows": sum(batch.count for batch in batches)})

    bare = build_trainer(name="Bare", default_policy=PGTorchPolicy, execution_plan=execution_plan)
    trainer = bare({"num_workers": 0, "rollout_fragment_length": 20}, env="CartPole-v1")
    trainer.env_steps_limit = 10
    assert trainer.train()["rows"] == 40
