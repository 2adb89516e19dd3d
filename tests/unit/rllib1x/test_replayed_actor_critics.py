"""Parts of RLlib's SAC and DDPG, in policies that derive from those here."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.rllib1x import replayed_actor_critics as parts
from rlframe.rllib1x.small import CentralizedValueMixin, with_base_config
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))


@pytest.mark.parametrize("algorithm", ["sac", "ddpg"])
def test_a_policy_derived_by_them_learns_reports_and_gives_td_errors(algorithm):
    pytest.importorskip("torch")
    import importlib

    module = importlib.import_module(f"rlframe.agents.{algorithm}.{algorithm}_torch_policy")
    base = getattr(module, f"{algorithm.upper()}TorchPolicy")
    made = []

    def set_up(policy, obs_space, action_space, config):
        module.setup_late_mixins(policy, obs_space, action_space, config)
        made.append(policy)

    derived = base.with_updates(
        name="Derived", mixins=[parts.TargetNetworkMixin, module.ComputeTDErrorMixin], after_init=set_up,
        validate_spaces=module.validate_spaces,
        stats_fn=lambda policy, batch: {**parts.stats(policy, batch), "own": 1.0},
    )  # fmt: skip
    policy = derived(OBS, ACTIONS, {"framework": "torch"})
    assert made == [policy]
    rng = np.random.default_rng(0)
    from rlframe.data.sample_batch import SampleBatch

    batch = SampleBatch(
        {
            "obs": rng.normal(size=(8, 3)).astype(np.float32),
            "new_obs": rng.normal(size=(8, 3)).astype(np.float32),
            "actions": rng.uniform(-1, 1, (8, 2)).astype(np.float32),
            "rewards": np.ones(8, np.float32),
            "dones": np.zeros(8, bool),
            "weights": np.ones(8, np.float32),
        }
    )
    learned = policy.learn_on_batch(batch)["learner_stats"]
    assert learned["own"] == 1.0
    assert {"mean_q", "critic_loss"} <= learned.keys()
    errors = policy.compute_td_error(batch["obs"], batch["actions"], batch["rewards"], batch["new_obs"], batch["dones"],
                                     batch["weights"])  # fmt: skip
    assert np.shape(errors) == (8,)
    networks = len(policy.model.variables())
    assert networks < len(policy.variables()) <= 2 * networks  # of what has targets, once more
    parts.TargetNetworkMixin.update_target(policy, tau=1.0)
    for name, weight in policy.target_model.named_parameters():
        np.testing.assert_array_equal(weight.detach(), dict(policy.model.named_parameters())[name].detach())
    outputs, dist_class, state = parts.action_distribution_fn(policy, policy.model, policy.to_tensors(batch["obs"]))
    assert (outputs.shape[0], dist_class, state) == (8, policy.dist_class, [])


def test_spaces_in_which_an_algorithm_cannot_act_are_refused():
    parts.validate_sac_spaces(None, OBS, spaces.Discrete(3), {})
    with pytest.raises(UnsupportedSpaceException):
        parts.validate_ddpg_spaces(None, OBS, spaces.Discrete(3), {})
    with pytest.raises(UnsupportedSpaceException):
        parts.validate_sac_spaces(None, OBS, spaces.MultiBinary(3), {})


def test_a_policy_without_target_networks_is_refused():
    with pytest.raises(ConfigError, match="has no target networks"):
        parts.TargetNetworkMixin.__init__(object())


def test_base_config_is_copied_and_its_sections_are_replaced_whole():
    base = {"lr": 1, "model": {"dim": 84, "framestack": True}}
    assert with_base_config(base, {"model": {"dim": 42}}) == {"lr": 1, "model": {"dim": 42}}
    assert base["model"]["dim"] == 84


def test_central_values_are_the_models():
    class Policy(CentralizedValueMixin):
        config = {"framework": "torch"}  # noqa: RUF012 - as a policy's

        class model:  # noqa: N801 - as a policy's attribute
            @staticmethod
            def central_value_function(obs, others):
                return obs + others

    assert Policy().compute_central_vf(1, 2) == 3
