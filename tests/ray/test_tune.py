"""Trainers under Ray Tune."""

import gymnasium
import pytest
from torch import nn

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.env import register_env
from rlframe.models import ModelCatalog
from rlframe.models.preprocessors import NoPreprocessor
from rlframe.models.torch.torch_action_dist import TorchCategorical
from rlframe.models.torch.torch_modelv2 import TorchModelV2

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

    settings = {"storage_path": str(tmp_path), "verbose": 0}
    analysis = tune.run("DQN", config=CONFIG, stop={"training_iteration": 2}, checkpoint_freq=1, **settings)
    assert analysis.trials[0].last_result["training_iteration"] == 2
    checkpoint = analysis.get_best_checkpoint(analysis.trials[0], metric="training_iteration", mode="max")
    trainer = DQNTrainer(CONFIG)
    trainer.restore(checkpoint.path)
    assert trainer.iteration == 2
    again = tune.run("DQN", config=CONFIG, stop={"timesteps_total": 201}, restore=checkpoint.path, **settings)
    assert again.trials[0].last_result["training_iteration"] == 3
    assert again.trials[0].last_result["timesteps_total"] >= 300


class NamedModel(TorchModelV2, nn.Module):
    """A model that a program registers by name."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.layer = nn.Linear(obs_space.shape[0], num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs"]), state


class NamedDist(TorchCategorical):
    """A distribution registered by name."""


class NamedPreprocessor(NoPreprocessor):
    """A preprocessor registered by name."""


@pytest.mark.slow
def test_names_registered_in_the_driver_are_known_in_trials_and_their_workers(ray_runtime, tmp_path):
    from rlframe import tune  # reserves what num_workers of a function's config needs

    ModelCatalog.register_custom_model("named_model", NamedModel)
    ModelCatalog.register_custom_action_dist("named_action_dist", NamedDist)
    ModelCatalog.register_custom_preprocessor("named_preprocessor", NamedPreprocessor)
    register_env("named_env", lambda config: gymnasium.make("CartPole-v1"))
    custom = {f"custom_{kind}": f"named_{kind}" for kind in ("model", "action_dist", "preprocessor")}
    config = {"env": "named_env", "num_workers": 1, "rollout_fragment_length": 20, "train_batch_size": 20}

    def train(settings):
        trainer = PGTrainer(settings)
        kinds = trainer.workers.foreach_worker(
            lambda worker: [
                type(part).__name__
                for part in (worker.get_policy().model, worker.get_policy()._obs_preprocessor)
            ] + [worker.get_policy().dist_class.__name__]
        )  # fmt: skip
        tune.report({"kinds": kinds, "steps": trainer.train()["timesteps_total"]})

    analysis = tune.run(train, config={**config, "model": custom}, storage_path=str(tmp_path), verbose=0)
    result = analysis.trials[0].last_result
    assert result["kinds"] == [["NamedModel", "NamedPreprocessor", "NamedDist"]] * 2
    assert result["steps"] == 20
