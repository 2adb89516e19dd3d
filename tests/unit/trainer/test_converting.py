"""Checkpoints that change frameworks."""

import os

import numpy as np
import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.trainer.converting import convert_checkpoint
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.state_files import read_state
from tests.helpers.frameworks import needs_tf
from tests.helpers.q_learners import make


def trained(tmp_path, **options):
    trainer = make(**options)
    for _ in range(2):
        trainer.train()
    return trainer, os.path.dirname(trainer.save(str(tmp_path / "saved")))


@needs_tf
@pytest.mark.parametrize("direction", [("torch", "tf"), ("tf", "torch")])
def test_converted_checkpoint_goes_on_with_the_same_numbers(tmp_path, direction):
    source, target = direction
    trainer, path = trained(tmp_path, framework=source)
    converted = convert_checkpoint(path, target)
    assert converted == f"{path}_{target}"
    other = make(framework=target, seed=99)
    other.restore(converted)
    assert other.iteration == 2
    weights = trainer.get_weights()["default_policy"]
    for name, array in other.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, weights[name], err_msg=name)
    obs = np.random.default_rng(0).normal(size=(20, *trainer.get_policy().observation_space.shape)).astype(np.float32)
    assert other.compute_actions({str(i): row for i, row in enumerate(obs)}, explore=False) == trainer.compute_actions(
        {str(i): row for i, row in enumerate(obs)}, explore=False
    )
    a, b = trainer.train(), other.train()
    assert a["timesteps_total"] == b["timesteps_total"]
    assert a["info"]["num_target_updates"] == b["info"]["num_target_updates"]
    # Replay, exploration and environments go on from the same streams, so only float32 rounding differs.
    assert a["hist_stats"] == b["hist_stats"]
    for name, array in other.get_weights()["default_policy"].items():
        np.testing.assert_allclose(array, trainer.get_weights()["default_policy"][name], atol=1e-4, err_msg=name)


def test_meta_says_the_new_framework_and_the_old_checkpoint_is_untouched(tmp_path):
    _, path = trained(tmp_path)
    converted = convert_checkpoint(path, "tf", str(tmp_path / "for_tf"))
    assert converted == str(tmp_path / "for_tf")
    _, meta = read_state(converted)
    assert (meta["framework"], meta["config"]["framework"]) == ("tf", "tf")
    assert read_state(path)[1]["framework"] == "torch"


def test_conversion_loads_no_framework(tmp_path):
    import subprocess
    import sys

    _, path = trained(tmp_path)
    code = (
        "import sys; from rlframe.trainer.converting import convert_checkpoint; "
        f"convert_checkpoint({path!r}, 'tf'); "
        "print([name for name in ('torch', 'tensorflow', 'ray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_belongs_to_one_framework_is_refused(tmp_path):
    _, path = trained(tmp_path)
    with pytest.raises(ConfigError, match="framework: got 'jax', wanted one of torch, tf"):
        convert_checkpoint(path, "jax")
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        convert_checkpoint(str(tmp_path / "nowhere"), "tf")


def test_an_optimiser_of_the_users_is_refused(tmp_path):
    import torch

    from rlframe.agents.dqn import DQNTorchPolicy

    policy = DQNTorchPolicy.with_updates(
        name="WithSGD", optimizer_fn=lambda policy, config: torch.optim.SGD(policy.model.parameters(), lr=0.1)
    )
    trainer = DQNTrainer.with_updates(name="SGD", default_policy=policy)({"min_iter_time_s": 0}, env="CartPole-v1")
    path = trainer.save(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"optimiser 0 of policy 'default_policy' .* is no Adam"):
        convert_checkpoint(path, "tf")
