"""The same weights and batches give the same numbers in TensorFlow as in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from tests.contract.test_policies import (
    CROSSQ,
    OFFLINE,
    ON_POLICY,
    RAINBOW,
    REBRAC,
    SEARCHED,
    TQC,
    WITHOUT_REPLAY,
    make,
    make_batch,
    same,
)

DETERMINISTIC = [
    ("SimpleQ", {}),
    ("DQN", {}),
    ("DQN", {"double_q": False, "dueling": False}),
    ("DQN", {"hiddens": [], "dueling": False}),
    ("DQN", {**RAINBOW, "noisy": False}),
    ("DQN", {**RAINBOW, "noisy": False, "dueling": False, "double_q": False}),
    ("DQN", {"exploration_config": {"type": "ParameterNoise"}}),
    *WITHOUT_REPLAY,
    *SEARCHED,
    *OFFLINE,
    *ON_POLICY,
    ("PPO", {"model": {"vf_share_layers": True}, "entropy_coeff": 0.01}),
    # The target then is a copy, as that test makes it.
    ("MADDPG", {"tau": 1.0}),
    ("MADDPG", {"tau": 1.0, "use_local_critic": True, "grad_norm_clipping": None, "actor_feature_reg": None}),
]


#: Losses of several optimisers, one of them delayed; their noise is drawn outside of the frameworks.
OF_PARTS = [
    ("SAC", {**TQC, "tau": 1.0}),
    ("SAC", CROSSQ),
    ("discrete SAC", {"tau": 1.0}),
    ("CQL", {"tau": 1.0, "bc_iters": 5, "num_actions": 2, "lagrangian": True}),
    ("discrete CQL", {"tau": 1.0, "bc_iters": 5}),
    ("TD3", {"l2_reg": 1e-3, "tau": 1.0}),
    ("TD3BC", {**REBRAC, "tau": 1.0}),
    ("IQL", {"tau": 1.0}),
    ("discrete IQL", {"tau": 1.0}),
    ("continuous ACER", {"ema_alpha": 0.0}),
]


def first_of_each(cases):
    """Returns the cases, those behind an algorithm's first for `make slow`: each traces two steps or three."""
    names = [name for name, _ in cases]
    return [
        pytest.param(*case, marks=() if names.index(case[0]) == place else pytest.mark.slow)
        for place, case in enumerate(cases)
    ]


def assert_they_act_alike(tf_policy, torch_policy):
    obs = make_batch(200)["obs"]
    np.testing.assert_array_equal(
        tf_policy.compute_actions(obs, explore=False)[0], torch_policy.compute_actions(obs, explore=False)[0]
    )
    for framework_pass, given in (("forward", obs), ("forward_in_framework", {"obs": obs})):
        ours, theirs = (getattr(policy, framework_pass)(given, False) for policy in (tf_policy, torch_policy))
        np.testing.assert_allclose(ours[0], theirs[0], atol=1e-5)


@pytest.mark.parametrize(("name", "overrides"), first_of_each([*DETERMINISTIC, *OF_PARTS]))
def test_ten_learner_steps_end_at_the_same_weights(name, overrides):
    torch_policy, tf_policy = make("torch", name, overrides), make("tf", name, overrides)
    tf_policy.set_weights(torch_policy.get_weights())
    if (name, overrides) in DETERMINISTIC:
        assert_they_act_alike(tf_policy, torch_policy)
    has_target = hasattr(tf_policy, "update_target")
    if has_target:
        tf_policy.update_target()
    obs = make_batch(50, seed=77)["obs"]
    for step in range(10):
        ours, theirs = (
            tf_policy.learn_on_batch(make_batch(32, step, name)),
            torch_policy.learn_on_batch(make_batch(32, step, name)),
        )
        if "td_error" in theirs:
            np.testing.assert_allclose(ours["td_error"], theirs["td_error"], atol=1e-4)
        if name != "PQN":
            ours["learner_stats"].pop("mean_td_error", None)  # RLlib told it there in TensorFlow alone
        assert set(ours["learner_stats"]) == set(theirs["learner_stats"])
        for key, value in theirs["learner_stats"].items():
            assert ours["learner_stats"][key] == pytest.approx(value, rel=1e-3, abs=1e-5), key
        if step == 5 and has_target:
            torch_policy.update_target()
            tf_policy.update_target()
    same(tf_policy.get_weights(), torch_policy.get_weights(), atol=1e-4, rtol=0)
    np.testing.assert_allclose(tf_policy.forward(obs, False)[0], torch_policy.forward(obs, False)[0], atol=1e-4)


def test_without_exploration_noisy_layers_act_alike():
    torch_policy, tf_policy = make("torch", "DQN", RAINBOW), make("tf", "DQN", RAINBOW)
    tf_policy.set_weights(torch_policy.get_weights())
    assert_they_act_alike(tf_policy, torch_policy)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("DQN", {**RAINBOW, "noisy": False}),
        ("PPO", {}),
        ("SAC", {}),
        pytest.param("DQN", {}, marks=pytest.mark.slow),
        pytest.param("APPO", {"use_kl_loss": True}, marks=pytest.mark.slow),
        pytest.param("MADDPG", {}, marks=pytest.mark.slow),
    ],
)
def test_a_state_crosses_over_with_target_and_moments(name, overrides):
    """From PyTorch to TensorFlow, and from there to another policy in PyTorch."""
    source = make("torch", name, overrides)
    for step in range(4):
        source.learn_on_batch(make_batch(32, step, name))
    for framework, learned in (("tf", 4), ("torch", 8)):
        target = make(framework, name, overrides, seed=50)
        target.set_state(source.get_state())
        same(target.get_weights(), source.get_weights())
        if hasattr(target, "target_network"):
            same(target.target_network.get_weights(), source.target_network.get_weights())
        # Without Adam's moments the next steps would be far longer.
        for step in range(learned, learned + 4):
            source.learn_on_batch(make_batch(32, step, name))
            target.learn_on_batch(make_batch(32, step, name))
        same(target.get_weights(), source.get_weights(), atol=1e-5, rtol=0)
        source = target
