"""Trainers under Ray Tune."""

import pytest

from rlframe.agents.dqn import DQNTrainer

pytestmark = pytest.mark.ray

CONFIG = {
    "env": "CartPole-v1",
    "seed": 1,
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 100,
    "learning_starts": 50,
    "hiddens": [16],
    "model": {"fcnet_hiddens": [16]},
}


def test_tune_run_by_name_stops_and_checkpoints_and_restores(ray_runtime, tmp_path):
    from rlframe import tune

    analysis = tune.run(
        "DQN",
        config={**CONFIG, "lr": tune.grid_search([1e-3, 1e-4])},
        stop={"training_iteration": 2},
        checkpoint_freq=1,
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert len(analysis.trials) == 2
    assert all(trial.last_result["training_iteration"] == 2 for trial in analysis.trials)
    checkpoint = analysis.get_best_checkpoint(analysis.trials[0], metric="training_iteration", mode="max")
    trainer = DQNTrainer({**CONFIG, "lr": 1e-3})
    trainer.restore(checkpoint.path)
    assert trainer.iteration == 2
    again = tune.run(
        "DQN",
        config={**CONFIG, "lr": 1e-3},
        stop={"training_iteration": 3},
        restore=checkpoint.path,
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert again.trials[0].last_result["training_iteration"] == 3
    assert again.trials[0].last_result["timesteps_total"] >= 300


def test_tuner_takes_the_class(ray_runtime, tmp_path):
    from ray import tune

    tuner = tune.Tuner(
        DQNTrainer,
        param_space=CONFIG,
        run_config=tune.RunConfig(stop={"timesteps_total": 150}, storage_path=str(tmp_path), verbose=0),
    )
    result = tuner.fit()[0]
    assert result.error is None
    assert result.metrics["timesteps_total"] >= 150
