"""Evaluation between iterations."""

import numpy as np
import pytest
import torch

from rlframe.agents.pg import PGTrainer
from rlframe.env import register_env
from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.utils.errors import ConfigError
from tests.helpers.envs import Bandit, Counting
from tests.helpers.q_learners import assert_same_weights, make


def test_evaluate_runs_exactly_so_many_fresh_episodes():
    trainer = make(Counting, env_config={"length": 6}, evaluation_num_episodes=4)
    evaluation = trainer.evaluate()["evaluation"]
    assert evaluation["episodes_this_iter"] == 4
    assert evaluation["episode_reward_mean"] == 21.0
    assert evaluation["hist_stats"]["episode_lengths"] == [6] * 4


@pytest.mark.parametrize(("slots", "episodes"), [(1, 4), (2, 6)])  # what both slots began in time is run to its end
def test_evaluation_by_steps_runs_whole_episodes_until_there_are_enough(slots, episodes):
    trainer = make(Counting, env_config={"length": 6}, evaluation_num_episodes=20, evaluation_duration_unit="timesteps",
                   num_envs_per_worker=slots)  # fmt: skip
    lengths = trainer.evaluate()["evaluation"]["hist_stats"]["episode_lengths"]
    assert lengths == [6] * episodes


def slow_second_slot(context):
    """One step an episode in the first slot, five in the second."""
    return Counting({"length": 5 if context.vector_index else 1})


@pytest.mark.parametrize("multi_agent", [False, True])
def test_evaluation_counts_long_episodes_of_slots_beside_short_ones(multi_agent):
    def creator(context):
        return make_multi_agent(lambda _: slow_second_slot(context))() if multi_agent else slow_second_slot(context)

    register_env("slow_second_slot", creator)
    trainer = PGTrainer(
        {"num_workers": 0, "num_envs_per_worker": 2, "evaluation_num_episodes": 5}, env="slow_second_slot"
    )

    def lengths(*going):
        return sorted(trainer.evaluate(*going)["evaluation"]["hist_stats"]["episode_lengths"])

    assert lengths() == [1, 1, 1, 5, 5]
    counts = lengths(lambda so_far: so_far < 3)  # and what had begun by then
    assert counts.count(5) == 1
    assert counts.count(1) >= 3
    assert lengths(lambda so_far: so_far < 0) == []


@pytest.mark.parametrize("always", [False, True])
def test_evaluation_interval_stamps_the_weights_it_speaks_of(always):
    trainer = make(
        Counting,
        env_config={"length": 6},
        evaluation_interval=2,
        evaluation_num_episodes=2,
        always_attach_evaluation_results=always,
    )
    results = [trainer.train() for _ in range(3)]
    assert "evaluation" not in results[0]
    assert results[1]["evaluation"]["training_iteration"] == 2
    assert results[1]["evaluation"]["age_iterations"] == 0
    assert ("evaluation" in results[2]) == always
    assert not always or results[2]["evaluation"]["age_iterations"] == 1


def test_evaluation_does_not_change_training():
    one, two = make(), make(evaluation_interval=1, evaluation_num_episodes=2)
    for _ in range(2):
        one.train(), two.train()
    assert_same_weights(one, two)


@pytest.mark.parametrize("num_envs", [1, 2])
def test_evaluation_judges_by_the_filters_of_training(num_envs):
    config = {"evaluation_interval": 1, "evaluation_num_episodes": 3, "num_envs_per_worker": num_envs}
    trainer = make(observation_filter="MeanStdFilter", **config)
    trainer.train()
    learned = trainer.workers.local_worker().filters["default_policy"]
    judged = trainer.evaluation_workers.local_worker().filters["default_policy"]
    assert judged.rs.n == learned.rs.n > 0
    np.testing.assert_array_equal(judged.rs.mean, learned.rs.mean)


def test_evaluation_parallel_to_training_gives_both():
    trainer = make(evaluation_interval=1, evaluation_num_episodes="auto", evaluation_parallel_to_training=True)
    assert trainer.train()["evaluation"]["episodes_this_iter"] >= 1


def test_custom_eval_function_is_called_once_and_must_return_metrics():
    calls = []

    def custom(trainer, eval_workers):
        calls.append(eval_workers)
        assert len(eval_workers.local_worker().sample()["infos"]) > 0, "an evaluation of one's own sees all columns"
        return {"score": 3}

    trainer = make(Bandit, evaluation_interval=1, custom_eval_function=custom)
    assert trainer.train()["evaluation"]["score"] == 3
    assert len(calls) == 1
    with pytest.raises(ConfigError, match="custom_eval_function"):
        make(Bandit, evaluation_interval=1, custom_eval_function=lambda t, w: {}).train()


def test_users_functions_behind_the_plan_find_its_counters():
    from rlframe.agents.callbacks import DefaultCallbacks
    from rlframe.execution.common import _get_shared_metrics

    seen = {}

    class Noting(DefaultCallbacks):
        def on_train_result(self, *, trainer, result, **kwargs):
            seen["result"] = _get_shared_metrics().counters["num_steps_sampled"]

    def custom(trainer, eval_workers):
        seen["evaluation"] = _get_shared_metrics().counters["num_steps_sampled"]
        return {"score": 3}

    result = make(Bandit, evaluation_interval=1, custom_eval_function=custom, callbacks=Noting).train()
    assert seen == {"result": result["timesteps_total"], "evaluation": result["timesteps_total"]}
    with pytest.raises(ValueError, match="No metrics context"):
        _get_shared_metrics()


def test_evaluation_beside_training_is_stamped_with_the_iteration_before():
    trainer = make(evaluation_interval=1, evaluation_num_episodes=1, evaluation_parallel_to_training=True)
    stamps = [
        (made["training_iteration"], made["age_iterations"]) for made in (trainer.train()["evaluation"] for _ in "ab")
    ]
    assert stamps == [(0, 1), (1, 1)]


@pytest.mark.parametrize("custom", [None, lambda trainer, workers: {"mine": 1.0}])
def test_evaluation_by_hand_is_stamped_with_the_last_iteration_and_attached_to_later_results(custom):
    trainer = make(evaluation_interval=3, custom_eval_function=custom, always_attach_evaluation_results=True)
    assert trainer.evaluate()["evaluation"]["training_iteration"] == 0
    trainer.train()
    assert trainer.evaluate()["evaluation"]["training_iteration"] == 1
    attached = trainer.train()["evaluation"]
    assert (attached["training_iteration"], attached["age_iterations"]) == (1, 1)
    assert trainer.train()["evaluation"]["training_iteration"] == 3


def test_a_loss_reads_what_the_optimizers_function_left_on_the_policy_in_evaluation_too():
    from rlframe.agents.pg.pg_torch_policy import PGTorchPolicy

    def optimizer(policy, config):
        policy.updates = 0
        return torch.optim.SGD(policy.model.parameters(), lr=config["lr"])

    def loss(policy, model, dist_class, batch):
        policy.updates += 1
        logits, _ = model.from_batch(batch)
        return -dist_class(logits, model).logp(batch["actions"]).mean()

    counting = PGTorchPolicy.with_updates(name="CountingUpdates", optimizer_fn=optimizer, loss_fn=loss)
    trainer = PGTrainer.with_updates(default_policy=counting)(
        config={"env": Counting, "framework": "torch", "train_batch_size": 20, "evaluation_interval": 1}
    )
    assert trainer.train()["evaluation"]["episodes_this_iter"] > 0
