"""Learning on several devices gives what learning on one gives; CPUs play the devices."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlframe.agents import dqn
from rlframe.data.sequences import padded_sequences
from rlframe.tensor import ops
from rlframe.utils.errors import ConfigError
from tests.contract.test_policies import OF_MANY, ON_POLICY, Q_LEARNING, RAINBOW, _cases, make, make_batch, same
from tests.helpers.frameworks import TORCH_FIRST

IN_TENSORFLOW, SLOWLY = [("PPO", {})], [("DQN", {}), ("MADDPG", {})]
WITHOUT_NOISE = [case for case in [*Q_LEARNING, *ON_POLICY, *OF_MANY] if case[1] != RAINBOW]


@pytest.mark.parametrize(("framework", "name", "overrides"), _cases(WITHOUT_NOISE, IN_TENSORFLOW, SLOWLY))
@pytest.mark.parametrize("devices", [2, 3])
def test_shares_add_up_to_the_step_on_one_device(framework, name, overrides, devices):
    if name in ("IMPALA", "APPO"):  # each share would scale its own rows
        overrides = {**overrides, "scale_advantages": False}
    single = make(framework, name, overrides)
    several = make(framework, name, overrides, num_gpus=devices, _fake_gpus=True)
    assert len(several.devices) == devices
    for step, rows in enumerate((12, 13, 32)):
        batch = make_batch(rows, step)
        batch["trajectory_ends"][-1] = True  # as in every batch that was collected
        mine, theirs = several.learn_on_batch(batch), single.learn_on_batch(batch)
        assert set(mine) == set(theirs)
        if "td_error" in theirs:
            np.testing.assert_allclose(mine["td_error"], theirs["td_error"], rtol=1e-4, atol=1e-5)
        for key, value in theirs["learner_stats"].items():
            if key not in ("vf_explained_var", "var_IS", "min_q", "max_q"):  # no means over rows
                assert mine["learner_stats"][key] == pytest.approx(value, rel=1e-4, abs=1e-5), key
    same(several.get_weights(), single.get_weights(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_fewer_rows_than_devices_are_learned_from(framework):
    single = make(framework, "PPO", {})
    several = make(framework, "PPO", {}, num_gpus=3, _fake_gpus=True)
    for policy in (single, several):
        policy.learn_on_batch(make_batch(2))
    same(several.get_weights(), single.get_weights(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_sequences_stay_whole_and_padding_weighs_nothing(framework):
    memory = {"model": {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 5}}
    single = make(framework, "PPO", memory)
    several = make(framework, "PPO", memory, num_gpus=2, _fake_gpus=True)
    batch = make_batch(17)
    batch["eps_id"] = np.array([0] * 8 + [1] * 9)
    for index in range(2):
        batch[f"state_in_{index}"] = np.random.default_rng(index).normal(size=(17, 6)).astype(np.float32)
    batch = padded_sequences(batch, 5)
    assert len(batch["seq_lens"]) == 4
    for policy in (single, several):
        policy.learn_on_batch(batch)
    same(several.get_weights(), single.get_weights(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_devices_that_are_not_there_are_named(framework):
    with pytest.raises(ConfigError, match="num_gpus: got 7, but"):
        make(framework, "PPO", {}, num_gpus=7)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_acting_and_state_are_those_of_one_device(framework):
    single = make(framework, "DQN", {})
    several = make(framework, "DQN", {}, num_gpus=2, _fake_gpus=True)
    several.learn_on_batch(make_batch())
    several.update_target()
    single.set_state(several.get_state())
    obs = make_batch(50)["obs"]
    np.testing.assert_array_equal(
        single.compute_actions(obs, explore=False)[0], several.compute_actions(obs, explore=False)[0]
    )
    several.learn_on_batch(make_batch(seed=1))
    single.learn_on_batch(make_batch(seed=1))
    same(several.get_weights(), single.get_weights(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_what_a_programs_loss_left_in_the_models_is_that_of_the_whole_batch(framework):
    def loss(policy, model, dist_class, batch):
        q_t = model({"obs": batch["obs"]})[0][:, 0]
        td_error = q_t - batch["rewards"]
        means = [ops.mean(td_error), ops.mean(q_t)]
        model.tower_stats.update(td_error=td_error, mean_td=means[0], both=means, name="mine")
        return ops.mean(td_error**2)

    def stats(policy, batch):
        left = policy.model.tower_stats
        assert left["name"] == "mine"
        return {"mean": left["mean_td"], "q": left["both"][1], "of_rows": ops.mean(left["td_error"])}

    built_in = getattr(dqn, "DQNTorchPolicy" if framework == "torch" else "DQNTFPolicy")
    own = built_in.with_updates(name="Own", loss_fn=loss, stats_fn=stats)
    spaces = (Box(-1.0, 1.0, (4,), np.float32), Discrete(2))
    single, several = (
        own(*spaces, {"num_gpus": devices, "_fake_gpus": True, "framework": framework, "seed": 0}) for devices in (0, 3)
    )
    several.set_weights(single.get_weights())
    for step, rows in enumerate((12, 13)):
        batch = make_batch(rows, step)
        mine, theirs = several.learn_on_batch(batch), single.learn_on_batch(batch)
        np.testing.assert_allclose(mine["td_error"], theirs["td_error"], rtol=1e-4, atol=1e-5)
        for name in ("mean", "q", "of_rows"):
            assert mine["learner_stats"][name] == pytest.approx(theirs["learner_stats"][name], rel=1e-4, abs=1e-5)
