"""PopArt: IMPALA and APPO learn alike whatever the size of rewards."""

import numpy as np
import pytest

from rlframe.agents.impala import ImpalaTrainer
from rlframe.agents.ppo import APPOTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.models import ModelCatalog
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.utils.errors import CheckpointError, ConfigError
from tests.contract.test_policies import make
from tests.helpers.frameworks import TORCH_FIRST

torch_first = pytest.mark.parametrize("framework", TORCH_FIRST)
every_policy = pytest.mark.parametrize("name", ["IMPALA", "APPO"])


def episodes_of_one_step(policy, rewards, seed=0):
    """Rows whose V-trace targets are their rewards: on-policy, each an episode of its own."""
    rewards = np.asarray(rewards, np.float32)
    obs = np.random.default_rng(seed).normal(size=(len(rewards), *policy.observation_space.shape)).astype(np.float32)
    actions, _, extras = policy.compute_actions(obs)
    return SampleBatch(
        {
            "obs": obs,
            "actions": actions,
            "action_logp": extras["action_logp"],
            "rewards": rewards,
            "discounts": np.zeros(len(rewards), np.float32),
            "trajectory_ends": np.ones(len(rewards), bool),
            "values_after": np.zeros(len(rewards), np.float32),
        }
    )


@torch_first
@every_policy
def test_units_follow_the_targets(framework, name):
    policy = make(framework, name, {})
    policy.learn_on_batch(episodes_of_one_step(policy, [-10.0, -30.0] * 8))
    assert policy.value_mean == pytest.approx(-20.0, rel=1e-4)
    assert policy.value_std == pytest.approx(10.0, rel=1e-3)
    policy.learn_on_batch(episodes_of_one_step(policy, [0.0, 0.0] * 8))
    # Half of the rows at 0, the other half at -10 and -30: mean -10, mean square 250.
    assert policy.value_mean == pytest.approx(-10.0, rel=1e-2)
    assert policy.value_std == pytest.approx((250 - 100) ** 0.5, rel=1e-2)


@torch_first
@every_policy
def test_values_are_in_reward_units(framework, name):
    policy = make(framework, name, {})
    batch = episodes_of_one_step(policy, np.random.default_rng(1).normal(-800.0, 100.0, 64))
    policy.learn_on_batch(batch)
    assert np.abs(policy.values(batch["obs"]) + 800.0).max() < 100.0  # a network that starts near 0 gives the mean
    assert "vf_preds" not in policy.compute_actions(batch["obs"])[2]


@torch_first
@every_policy
def test_weights_alone_carry_the_values(framework, name, caplog):
    policy, twin = make(framework, name, {}), make(framework, name, {"seed": 9})
    batch = episodes_of_one_step(policy, np.random.default_rng(1).normal(-800.0, 100.0, 32))
    for _ in range(3):
        policy.learn_on_batch(batch)
    twin.set_weights(policy.get_weights())
    np.testing.assert_allclose(twin.values(batch["obs"]), policy.values(batch["obs"]), rtol=1e-5)
    for learner in (policy, twin):  # whose values go on from there, also where rewards are rare
        learner.set_weights(learner.get_weights())
        before = learner.values(batch["obs"])
        learner.learn_on_batch(episodes_of_one_step(policy, np.zeros(32)))
    assert np.abs(twin.values(batch["obs"]) - before).max() < 50.0
    assert not [record for record in caplog.records if record.name == "rlframe"]
    bare = {key: array for key, array in policy.get_weights().items() if "popart" not in key}
    twin.set_weights(bare)
    assert "weights without PopArt's moments were given" in caplog.text
    assert twin.value_mean == pytest.approx(-800.0, abs=100.0)
    with pytest.raises(ValueError, match="set normalize_values=True"):
        make(framework, name, {"normalize_values": False}).set_weights(policy.get_weights())


@torch_first
def test_setting_a_policys_own_weights_changes_nothing(framework):
    policy = make(framework, "IMPALA", {})
    policy.learn_on_batch(episodes_of_one_step(policy, [-10.0, -30.0] * 8))
    before = policy.get_state()["_components"]["popart"]
    policy.set_weights(policy.get_weights())
    assert policy.get_state()["_components"]["popart"] == before


@torch_first
@every_policy
def test_step_does_not_depend_on_the_size_of_rewards(framework, name):
    small, large = make(framework, name, {}), make(framework, name, {})
    rewards = np.random.default_rng(2).normal(-3.0, 2.0, 32)
    small.learn_on_batch(episodes_of_one_step(small, rewards))
    state = small.get_state()
    parts = state["_components"]
    popart = {**parts["popart"], "mean": 1000 * parts["popart"]["mean"]}
    popart |= {"variance": 1e6 * popart["variance"], "largest_reward": 1000 * popart["largest_reward"]}
    large.set_state({**state, "_components": {**parts, "popart": popart}})
    batch = episodes_of_one_step(small, rewards, seed=3)
    small.learn_on_batch(batch)
    large.learn_on_batch(SampleBatch({**batch, "rewards": 1000 * batch["rewards"]}))
    for key, weights in small.get_weights().items():
        wanted = 1000 * weights if "popart" in key else weights
        np.testing.assert_allclose(large.get_weights()[key], wanted, rtol=1e-3, atol=1e-5, err_msg=key)


@torch_first
@every_policy
def test_units_of_a_network_with_large_outputs_do_not_chase_themselves(framework, name):
    """Targets are made of values: a network that gives 100 would otherwise make its units larger at each step."""
    policy = make(framework, name, {"gamma": 0.9})
    network = {key: array * (1.0 if "popart" in key else 30.0) for key, array in policy.get_weights().items()}
    policy.set_weights(network)
    rows = 40
    batch = episodes_of_one_step(policy, np.ones(rows))
    batch["discounts"] = np.full(rows, 0.9, np.float32)
    batch["trajectory_ends"] = np.arange(rows) % 20 == 19
    for _ in range(30):
        policy.learn_on_batch(batch)
    assert policy.value_std <= 10.0  # 1 / (1 - γ): no return is larger
    assert abs(policy.value_mean) <= 10.0


@torch_first
@every_policy
def test_loss_or_statistics_of_ones_own_need_none_of_ours(framework, name):
    cls = type(make(framework, name, {}))
    derived = cls.with_updates("Mine", stats_fn=lambda policy, batch: {"mine": 1.0})
    policy = make(framework, name, {})
    mine = derived(policy.observation_space, policy.action_space, policy.config)
    info = mine.learn_on_batch(episodes_of_one_step(mine, [1.0, 2.0]))
    assert info["learner_stats"]["mine"] == 1.0
    assert (mine.value_mean, mine.value_std) == (0.0, 1.0)


@torch_first
def test_state_in_other_units_is_refused(framework):
    policy = make(framework, "IMPALA", {})
    plain = make(framework, "IMPALA", {"normalize_values": False})
    with pytest.raises(CheckpointError, match=r"in reward units, this one's normalised \(PopArt\); set normalize_v"):
        policy.set_state(plain.get_state())
    with pytest.raises(CheckpointError, match="set normalize_values=True"):
        plain.set_state(policy.get_state())


def test_wrong_value_function_is_found_when_the_policy_is_made():
    class Wrong(FullyConnectedNetwork):
        def value_function(self):
            return super().value_function()[:, None]

    ModelCatalog.register_custom_model("wrong_values", Wrong)
    with pytest.raises(ValueError, match="Squeeze the last dimension"):
        make("torch", "IMPALA", {"model": {"custom_model": "wrong_values"}})


@torch_first
def test_off_is_off(framework):
    policy = make(framework, "IMPALA", {"normalize_values": False, "scale_advantages": False})
    policy.learn_on_batch(episodes_of_one_step(policy, [5.0, -700.0]))
    assert (policy.value_mean, policy.value_std) == (0.0, 1.0)
    assert not any("popart" in name for name in policy.get_weights())


@pytest.mark.parametrize(
    ("trainer", "config", "said"),
    [
        (APPOTrainer, {"vtrace": False, "normalize_values": True}, "normalize_values=True needs vtrace=True"),
        (ImpalaTrainer, {"vtrace_drop_last_ts": False, "normalize_values": True}, "vtrace_drop_last_ts=True"),
        (ImpalaTrainer, {"vtrace": False, "scale_advantages": True}, "scale_advantages=True needs vtrace"),
    ],
)
def test_where_it_cannot_be_the_config_says_so(trainer, config, said):
    with pytest.raises(ConfigError, match=said):
        trainer({"num_workers": 0, **config}, env="CartPole-v1")
