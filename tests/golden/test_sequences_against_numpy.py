"""Learning from replayed sequences, step by step in NumPy: R2D2's errors, burn-in, stored states, priorities."""

import copy
import importlib
import math

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.dqn.r2d2 import R2D2Config, R2D2Trainer
from rlframe.agents.families.replayed_sequences import histories, sequence_priorities, steps_ahead
from rlframe.agents.sac.rnnsac import RNNSACConfig
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.q_learning import signed_hyperbolic, signed_parabolic
from rlframe.models.actor import bind_chain
from rlframe.models.recurrent_actor import behind_lstm, make_actor
from tests.helpers.frameworks import TORCH_FIRST, both_frameworks, needs_tf, to_tensor

OBS, ACTIONS = gym.spaces.Box(-10, 10, (2,), np.float32), gym.spaces.Discrete(3)
LSTM = {"use_lstm": True, "lstm_cell_size": 5, "fcnet_hiddens": [4], "max_seq_len": 4}
GAMMA, EPS, ETA = 0.9, 1e-2, 0.7


def make_policy(framework, **overrides):
    config = R2D2Config.defaults()
    config["model"].update(LSTM)
    config.update({"framework": framework, "seed": 3, "gamma": GAMMA, "hiddens": [6], "h_function_epsilon": EPS})
    found = importlib.import_module("rlframe.agents.dqn.r2d2_policy")
    cls = found.R2D2TorchPolicy if framework == "torch" else found.R2D2TFPolicy
    return cls(OBS, ACTIONS, {**config, "prioritized_replay_eta": ETA, "seed": 3, **overrides})


def replayed(burn_in, *, terminated=True, rng=0):
    """Returns three sequences as a buffer gives them: one of an episode's beginning, one to its end, one in between."""
    rng = np.random.default_rng(rng)
    lens, warmed = [4, burn_in + 2, burn_in + 4], [0, burn_in, burn_in]
    rows = sum(lens)
    ends = np.cumsum(lens)
    obs = rng.normal(size=(rows, 2)).astype(np.float32)
    new_obs = np.concatenate([obs[1:], obs[:1]])
    new_obs[ends - 1] = rng.normal(size=(3, 2))
    discounts = np.full(rows, GAMMA, np.float32)
    discounts[ends[1] - 1] *= not terminated
    return SampleBatch(
        {
            "obs": obs, "new_obs": new_obs, "actions": rng.integers(3, size=rows), "discounts": discounts,
            "rewards": (10 * rng.normal(size=rows)).astype(np.float32),
            "weights": np.repeat(rng.uniform(0.2, 1, 3), lens).astype(np.float32),
            "burn_in": np.concatenate([np.arange(n) < b for n, b in zip(lens, warmed, strict=True)]),
            "state_in_0": rng.normal(size=(3, 5)).astype(np.float32),
            "state_in_1": rng.normal(size=(3, 5)).astype(np.float32), "seq_lens": np.array(lens, np.int32),
        }
    )  # fmt: skip


def h(x):
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + EPS * x


def h_inverse(x):
    root = (math.sqrt(1 + 4 * EPS * (abs(x) + 1 + EPS)) - 1) / (2 * EPS)
    return math.copysign(root**2 - 1, x)


def slow_values(actor, batch, number):
    """Returns values along a sequence and behind it, step by step: `[length + 1, A]`."""
    begin = int(batch["seq_lens"][:number].sum())
    end = begin + batch["seq_lens"][number]
    states = [batch[key][number : number + 1] for key in ("state_in_0", "state_in_1")]
    values = []
    for obs in (*batch["obs"][begin:end], batch["new_obs"][end - 1]):
        q, _, states = actor.step(obs[None], {"state_in_0": states[0], "state_in_1": states[1]})
        values.append(q[0].astype(np.float64))
    return np.array(values)


def slow_step(policy, batch, n, *, rescaled=True, double_q=True):
    """Returns the loss of replayed sequences, and their priorities, by the equations of `R2D2Policy`."""
    online, target = (
        make_actor(policy.actor_spec(), source.get_weights()) for source in (policy, policy.target_network)
    )
    outer, inner = (h, h_inverse) if rescaled else ((lambda x: x), (lambda x: x))
    losses, priorities, begin = [], [], 0
    for number, length in enumerate(batch["seq_lens"].tolist()):
        q, q_target, errors = slow_values(online, batch, number), slow_values(target, batch, number), []
        for step in range(length):
            if batch["burn_in"][begin + step]:
                continue
            last = min(step + n, length)
            total, discount = 0.0, 1.0
            for row in range(begin + step, begin + last):
                total += discount * float(batch["rewards"][row])
                discount *= float(batch["discounts"][row])
            best = (q if double_q else q_target)[last].argmax()
            error = q[step, batch["actions"][begin + step]] - outer(total + discount * inner(q_target[last, best]))
            errors.append(error)
            losses.append(batch["weights"][begin] * (0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5))
        priorities.append(ETA * np.abs(errors).max() + (1 - ETA) * np.abs(errors).mean())
        begin += length
    return np.mean(losses), np.array(priorities)


@pytest.mark.parametrize(
    ("framework", "burn_in", "n", "overrides"),
    [
        ("torch", 0, 1, {}),
        ("torch", 3, 1, {"double_q": False}),
        ("torch", 3, 2, {"use_h_function": False}),
        ("torch", 2, 9, {"dueling": False}),
        pytest.param("tf", 3, 3, {}, marks=[needs_tf, pytest.mark.slow]),
    ],
)
def test_errors_of_sequences_are_those_of_steps(framework, burn_in, n, overrides):
    policy = make_policy(framework, burn_in=burn_in, n_step=n, **overrides)
    other = make_policy(framework, seed=9, burn_in=burn_in, n_step=n, **overrides)
    policy.target_network.set_weights(other.get_weights())
    batch = replayed(burn_in)
    rescaled, double_q = overrides.get("use_h_function", True), overrides.get("double_q", True)
    loss, priorities = slow_step(policy, batch, n, rescaled=rescaled, double_q=double_q)
    result = policy.learn_on_batch(batch)
    np.testing.assert_allclose(result["td_error"], priorities, rtol=2e-4)
    if framework == "torch":
        q_loss = policy.model.tower_stats["q_loss"]
        assert q_loss.loss.item() == pytest.approx(loss, rel=2e-4)
    changed = slow_step(policy, batch, n, rescaled=rescaled, double_q=double_q)[0]
    assert changed != loss, "something was learned"


def make_rnnsac(framework, **overrides):
    config = RNNSACConfig.defaults()
    memory = {"use_lstm": True, "lstm_cell_size": 5, "fcnet_hiddens": [4]}
    for key in ("Q_model", "policy_model"):
        config[key].update(memory)
    config["model"]["max_seq_len"] = 4
    found = importlib.import_module("rlframe.agents.sac.rnnsac_policy")
    cls = found.RNNSACTorchPolicy if framework == "torch" else found.RNNSACTFPolicy
    config.update({"framework": framework, "seed": 3, "gamma": GAMMA, "prioritized_replay_eta": ETA, **overrides})
    return cls(OBS, ACTIONS, config)


def slow_soft_priorities(policy, batch, n, alpha):
    """Returns the priorities of sequences by the equations of `SACPolicy` for choices, step by step."""
    online, target = policy.get_weights(), policy.target_network.get_weights()
    memory = behind_lstm(policy.model.encoder.actor_spec(), "encoder", [])

    def behind(weights, part, features):
        for layer in bind_chain(policy.model.parts[part].prefixed(part), weights, None):
            features = layer(features)
        return features.astype(np.float64)

    priorities, begin = [], 0
    for number, length in enumerate(batch["seq_lens"].tolist()):
        seen, later = (
            slow_values(make_actor(memory, weights), batch, number).astype(np.float32) for weights in (online, target)
        )
        logits = behind(online, "actor", seen)
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        least = np.minimum(behind(target, "q", later), behind(target, "twin_q", later))
        soft = (np.exp(log_probs) * (least - alpha * log_probs)).sum(-1)
        errors = []
        for step in range(length):
            if batch["burn_in"][begin + step]:
                continue
            last, total, discount = min(step + n, length), 0.0, 1.0
            for row in range(begin + step, begin + last):
                total += discount * float(batch["rewards"][row])
                discount *= float(batch["discounts"][row])
            action = batch["actions"][begin + step]
            values = [behind(online, part, seen)[step, action] for part in ("q", "twin_q")]
            errors.append(np.mean([abs(value - total - discount * soft[last]) for value in values]))
        priorities.append(ETA * max(errors) + (1 - ETA) * np.mean(errors))
        begin += length
    return np.array(priorities)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_errors_of_rnnsac_are_those_of_steps(framework):
    policy = make_rnnsac(framework, burn_in=3, n_step=2, initial_alpha=0.3)
    policy.target_network.set_weights(make_rnnsac(framework, seed=9).target_network.get_weights())
    batch = replayed(3)
    wanted = slow_soft_priorities(policy, batch, 2, 0.3)
    before = policy.get_weights()
    np.testing.assert_allclose(policy.learn_on_batch(batch)["td_error"], wanted, rtol=2e-4)
    changed = {name.split(".")[0] for name, array in policy.get_weights().items() if (array != before[name]).any()}
    assert changed == {"encoder", "actor", "q", "twin_q", "log_alpha"}


def test_no_gradient_flows_through_burn_in():
    torch = importlib.import_module("torch")
    policy = make_policy("torch", burn_in=3)
    batch = policy._lazy_tensor_dict(policy._learned_columns(replayed(3)))
    batch["obs"].requires_grad_()
    policy.loss(policy.model, policy.dist_class, batch).losses.backward()
    slopes = batch["obs"].grad.abs().sum(-1).reshape(3, -1)
    assert (slopes[:, :3] == 0).all()
    assert (slopes[0, 3:7] > 0).all(), "the beginning of an episode has no burn-in"
    assert (slopes[1, 3:5] > 0).all()
    assert (slopes[2, 3:7] > 0).all()
    assert torch.isfinite(slopes).all()
    state = [policy.model.tower_stats["td_error"]]
    batch["state_in_0"] = batch["state_in_0"] + 1.0
    policy.loss(policy.model, policy.dist_class, batch)
    assert not torch.allclose(policy.model.tower_stats["td_error"], state[0]), "but it leads to the states"


def test_what_is_behind_a_step_stands_behind_it_in_its_sequence():
    class Policy:
        config = {"burn_in": 2, "n_step": 2}  # noqa: RUF012
        max_seq_len = 4

        def acting_views(self):
            return {}

        def _has_own_loss(self):
            return False

    batch = replayed(2)
    made = histories(Policy(), batch)
    width = 2 + 4 + 1
    assert made["obs"].shape == (3 * width, 2)
    np.testing.assert_array_equal(made["obs"][2:6], batch["obs"][:4])  # no burn-in: fillers stand before
    np.testing.assert_array_equal(made["obs"][6], batch["new_obs"][3])
    np.testing.assert_array_equal(made["obs"][width : width + 4], batch["obs"][4:8])
    np.testing.assert_array_equal(made["obs"][width + 4], batch["new_obs"][7])
    mask = made["valid_mask"].reshape(3, width).astype(int).tolist()
    assert mask == [[0, 0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0]]
    assert made["n_steps"].reshape(3, width)[:, 2:].tolist() == [[2, 2, 2, 1, 0], [2, 1, 0, 0, 0], [2, 2, 2, 1, 0]]
    assert made["burn_in"].reshape(3, width)[:, 0].tolist() == [False, True, True]
    assert made["seq_lens"].tolist() == [5, 3, 5]
    r = batch["rewards"]
    np.testing.assert_allclose(made["rewards"][2:6], [*(r[:3] + np.float32(GAMMA) * r[1:4]), r[3]])
    np.testing.assert_allclose(made["discounts"][width + 2 : width + 4], [0.0, 0.0])  # the episode's last two steps
    assert "new_obs" not in made


@both_frameworks
def test_steps_ahead_and_priorities_by_hand(framework):
    x = to_tensor(framework, np.arange(12, dtype=np.float32).reshape(6, 2))
    ahead = steps_ahead(x, to_tensor(framework, np.array([1, 2, 3, 1, 0, 0], np.int32)), 3)
    assert np.asarray(ahead)[:4].tolist() == [[2, 3], [6, 7], [10, 11], [8, 9]]
    columns = {"valid_mask": np.array([0, 1, 1, 1, 1, 0], bool), "seq_lens": np.array([3, 2], np.int32)}
    batch = {key: to_tensor(framework, column) for key, column in columns.items()}
    made = sequence_priorities(to_tensor(framework, np.array([9, -3, 1, -2, 0, 9], np.float32)), batch, 0.9)
    np.testing.assert_allclose(np.asarray(made), [0.9 * 3 + 0.1 * 2, 0.9 * 2 + 0.1 * 1], rtol=1e-6)


@both_frameworks
def test_value_rescaling_and_its_inverse(framework):
    x = np.array([-1e5, -30, -3, -0.5, 0, 1e-3, 1, 8, 1e3, 1e6], np.float32)
    made = np.asarray(signed_hyperbolic(to_tensor(framework, x), EPS))
    np.testing.assert_allclose(made, [h(float(value)) for value in x], rtol=1e-5)
    np.testing.assert_allclose(made[[2, 7]], [-1 - 3 * EPS, 2 + 8 * EPS], rtol=1e-6)  # by hand
    for eps in (EPS, 1e-3, 0.0):
        scaled = signed_hyperbolic(to_tensor(framework, x), eps)
        np.testing.assert_allclose(np.asarray(signed_parabolic(scaled, eps)), x, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(
        np.asarray(signed_parabolic(to_tensor(framework, x[1:8]), EPS)),
        [h_inverse(float(v)) for v in x[1:8]],
        rtol=1e-5,
        atol=1e-6,
    )


def test_stored_states_are_those_that_the_sequence_before_leads_to():
    model = {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    config = {"num_workers": 0, "seed": 1, "model": model, "rollout_fragment_length": 60, "log_sys_usage": False}
    trainer = R2D2Trainer(copy.deepcopy(config), env="CartPole-v1")
    policy, batch = trainer.get_policy(), trainer.workers.local_worker().sample()
    states, row = policy.get_initial_state(), 0
    for number, length in enumerate(batch["seq_lens"]):
        if batch["t"][row] == 0:
            states = policy.get_initial_state()
        for index, state in enumerate(states):
            np.testing.assert_allclose(batch[f"state_in_{index}"][number], np.reshape(state, -1), atol=1e-5)
        for at in range(row, row + length):
            views = {key: batch[key][at : at + 1] for key in ("prev_actions", "prev_rewards")}
            columns = {"obs": batch["obs"][at : at + 1], **views}
            columns |= {f"state_in_{i}": np.reshape(state, (1, -1)) for i, state in enumerate(states)}
            states = policy.forward_in_framework(columns, False)[2]
        row += length
    assert len(batch["seq_lens"]) > 10
