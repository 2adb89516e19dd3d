"""Experiments with the keys of Ray 1.x."""

from ray.tune import registry

from rlframe.agents.dqn import DQNTrainer
from rlframe.tune import Experiment
from rlframe.tune.experiment import with_present_keys


def test_old_keys_are_taken_by_the_constructor_and_from_the_spec(tmp_path):
    made = Experiment("e", "DQN", local_dir=str(tmp_path), checkpoint_freq=3, stop={"training_iteration": 1})
    assert made.spec["checkpoint_config"].checkpoint_frequency == 3
    made.spec["checkpoint_freq"] = 20
    made.spec["keep_checkpoints_num"] = 5
    (same,) = with_present_keys([made])
    config = same.spec["checkpoint_config"]
    assert (config.checkpoint_frequency, config.num_to_keep) == (20, 5)
    assert "checkpoint_freq" not in same.spec


def test_a_name_that_ray_forgot_is_that_of_this_packages_algorithm(tmp_path):
    registry._global_registry._to_flush.pop((registry.TRAINABLE_CLASS, "DQN"), None)  # as ray.shutdown() does
    made = Experiment("e", "DQN", local_dir=str(tmp_path))
    assert issubclass(registry.get_trainable_cls(made.run_identifier), DQNTrainer)
