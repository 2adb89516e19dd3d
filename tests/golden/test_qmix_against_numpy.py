"""QMIX's mixers and loss against sums taken by hand, number by number, in NumPy."""

import copy
import math

import numpy as np
import pytest
import torch

from rlframe.agents.qmix.qmix_policy import best_values, chosen_values
from rlframe.rllib1x.qmix_torch import QMixer, VDNMixer
from tests.helpers.frameworks import needs_tf
from tests.helpers.group_batches import FULL, PLAIN, A, N, episodes, flatten, group_obs, group_policy

STATE = 5


def linear(weights, name, x):
    return dot(weights[f"{name}.weight"], x, weights[f"{name}.bias"])


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def slow_mix(weights, q, state):
    """Q_tot of one step, by Rashid et al. 2018, figure 2."""
    first = linear(weights, "mixer_w1.output", state)
    bias = linear(weights, "mixer_b1.output", state)
    last = linear(weights, "mixer_w2.output", state)
    width = len(bias)
    inner = [max(0.0, x) for x in linear(weights, "mixer_v.hidden", state)]
    (total,) = linear(weights, "mixer_v.output", inner)
    for unit in range(width):
        x = sum(q[i] * abs(first[i * width + unit]) for i in range(len(q))) + bias[unit]
        total += (x if x > 0 else math.exp(x) - 1) * abs(last[unit])
    return total


def slow_agent(weights, obs, state):
    """Values of one agent's actions at one step, and the state of its GRU behind it (Cho et al. 2014)."""
    x = [max(0.0, value) for value in linear(weights, "agent.inputs", obs)]
    size = len(state)
    of_input = dot(weights["agent.gru.weight_ih"], x, weights["agent.gru.bias_ih"])
    of_state = dot(weights["agent.gru.weight_hh"], state, weights["agent.gru.bias_hh"])
    after = []
    for i in range(size):
        reset = sigmoid(of_input[i] + of_state[i])
        update = sigmoid(of_input[size + i] + of_state[size + i])
        new = math.tanh(of_input[2 * size + i] + reset * of_state[2 * size + i])
        after.append((1 - update) * new + update * float(state[i]))
    return linear(weights, "agent.outputs", after), after


def dot(matrix, x, bias):
    return [
        sum(float(w) * float(v) for w, v in zip(matrix[i], x, strict=True)) + float(bias[i]) for i in range(len(bias))
    ]


def parts(row, member):
    """Observations, masks and the mixer's state of a flat row; keys of a Dict lie in sorted order."""
    by_agent = row.reshape(N, -1)
    if member is PLAIN:
        return by_agent, np.ones((N, A)), row
    return by_agent[:, A : A + 2], by_agent[:, :A], by_agent[0, A + 2 :]


def slow_loss(policy, batch, member, *, mixer, double_q):
    online, target = policy.get_weights(), policy.target_network.get_weights()

    def mixed(weights, q, state):
        if mixer is None:
            return list(q)
        return [sum(q)] if mixer == "vdn" else [slow_mix(weights, q, state)]

    squares, begin = [], 0
    for number, length in enumerate(batch["seq_lens"].tolist()):
        rows = range(begin, begin + length)
        history = [batch["obs"][begin], *(batch["new_obs"][row] for row in rows)]
        values = {"online": [], "target": []}
        for name, weights in (("online", online), ("target", target)):
            states = [list(state) for state in batch["state_in_0"][number]]
            for flat in history:
                made = [slow_agent(weights, parts(flat, member)[0][i], states[i]) for i in range(N)]
                values[name].append([q for q, _ in made])
                states = [state for _, state in made]
        for t, row in enumerate(rows):
            taken = [values["online"][t][i][batch["actions"][row][i]] for i in range(N)]
            _, mask, next_state = parts(batch["new_obs"][row], member)
            best = []
            for i in range(N):
                chooser = values["online" if double_q else "target"][t + 1][i]
                allowed = [a for a in range(A) if mask[i][a] > 0]
                best.append(values["target"][t + 1][i][max(allowed, key=lambda a, q=chooser: q[a])])
            totals = mixed(online, taken, parts(batch["obs"][row], member)[2])
            nexts = mixed(target, best, next_state)
            rewards = batch["member_rewards"][row] if mixer is None else [batch["rewards"][row]]
            for total, after, reward in zip(totals, nexts, rewards, strict=True):
                squares.append((total - (float(reward) + float(batch["discounts"][row]) * after)) ** 2)
        begin += length
    return sum(squares) / len(squares)


@pytest.mark.parametrize(
    ("mixer", "double_q", "member"),
    [("qmix", True, FULL), ("qmix", False, PLAIN), ("vdn", False, FULL), (None, True, FULL), (None, True, PLAIN)],
    ids=lambda value: {id(FULL): "masks and state", id(PLAIN): "plain"}.get(id(value), str(value)),
)
def test_the_loss_is_that_taken_by_hand(mixer, double_q, member):
    policy = group_policy(member, mixer=mixer, double_q=double_q, lr=1e-2)
    for seed in range(3):  # online and target networks differ
        policy.learn_on_batch(episodes(seed=seed, member=member))
    batch = episodes((4, 2, 1, 3), seed=7, member=member)
    wanted = slow_loss(policy, batch, member, mixer=mixer, double_q=double_q)
    stats = policy.learn_on_batch(batch)["learner_stats"]
    assert stats["loss"] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("n_agents", [1, 4])
def test_the_mixing_network_is_that_taken_by_hand(n_agents):
    torch.manual_seed(1)
    mixer = QMixer(n_agents, (STATE,), 8)
    weights = {name: tensor.numpy() for name, tensor in mixer.state_dict().items()}
    q, states = 3 * torch.randn(2, 6, n_agents), torch.randn(2, 6, STATE)
    made = mixer(q, states)
    assert made.shape == (2, 6, 1)
    for b in range(2):
        for t in range(6):
            wanted = slow_mix(weights, q[b, t].tolist(), states[b, t].tolist())
            assert made[b, t, 0].item() == pytest.approx(wanted, abs=1e-4)


@pytest.mark.slow
@needs_tf
def test_both_frameworks_learn_alike():
    """From the same weights: loss, clipping, RMSProp, target and acting."""
    one, other = group_policy(), group_policy(framework="tf")
    other.set_weights(one.get_weights())
    other.update_target()
    for step in range(4):
        batch = episodes((4, 2, 1, 3), seed=step)
        mine, theirs = (policy.learn_on_batch(batch)["learner_stats"] for policy in (one, other))
        assert mine == pytest.approx(theirs, rel=1e-4)
    weights = other.get_weights()
    for name, array in one.get_weights().items():
        np.testing.assert_allclose(array, weights[name], rtol=1e-4, atol=1e-6, err_msg=name)
    obs = flatten(group_obs(np.random.default_rng(1), 5))
    states = {"state_in_0": np.repeat(one.get_initial_state()[0][None], 5, 0)}
    (values, _, [after]), (others, _, [beside]) = (p.forward_with_memory(obs, states, False) for p in (one, other))
    np.testing.assert_allclose(values, others, rtol=1e-4)
    np.testing.assert_allclose(after, beside, atol=1e-6)
    np.testing.assert_allclose(other.forward_in_framework({"obs": obs, **states}, False)[0], others, rtol=1e-4)
    again = group_policy(framework="tf", seed=9)
    again.set_state(copy.deepcopy(other.get_state()))
    assert again.learn_on_batch(batch)["learner_stats"] == other.learn_on_batch(batch)["learner_stats"]
    assert again.learn_on_batch(batch)["learner_stats"] == other.learn_on_batch(batch)["learner_stats"]


def test_the_mixing_network_by_pencil():
    mixer = QMixer(2, 1, 1)
    numbers = {
        "mixer_w1.output.weight": [[-1.0], [2.0]], "mixer_w1.output.bias": [0.0, 0.0],
        "mixer_b1.output.weight": [[0.0]], "mixer_b1.output.bias": [0.5],
        "mixer_w2.output.weight": [[-3.0]], "mixer_w2.output.bias": [0.0],
        "mixer_v.hidden.weight": [[1.0]], "mixer_v.hidden.bias": [0.0],
        "mixer_v.output.weight": [[1.0]], "mixer_v.output.bias": [10.0],
    }  # fmt: skip
    mixer.load_state_dict({name: torch.tensor(value) for name, value in numbers.items()})
    # s = 1: elu(1·|-1| + 2·|2| + 0.5) · |-3| + (1 + 10) = 5.5 · 3 + 11
    assert mixer(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0]])).item() == pytest.approx(27.5)
    # s = 1: elu(-3 + 0.5) = exp(-2.5) - 1
    assert mixer(torch.tensor([[-3.0, 0.0]]), torch.tensor([[1.0]])).item() == pytest.approx(11 + 3 * math.expm1(-2.5))
    assert VDNMixer()(torch.tensor([[1.0, 2.0, -4.0]]), None).tolist() == [[-1.0]]


@pytest.mark.parametrize("make", [lambda: QMixer(4, STATE, 8), VDNMixer], ids=["qmix", "vdn"])
def test_the_value_of_all_grows_with_each_agents(make):
    torch.manual_seed(0)
    mixer = make()
    q = (5 * torch.randn(500, 4)).requires_grad_()
    states = 5 * torch.randn(500, STATE)
    mixer(q, states).sum().backward()
    assert (q.grad >= 0).all()
    assert (q.grad > 0).any(dim=0).all()
    # So agents that choose for themselves choose what is best together.
    values = torch.randn(500, 4, 3)
    joint = torch.cartesian_prod(*[torch.arange(3)] * 4)
    every = torch.stack([mixer(chosen_values(values, choice.expand(500, 4)), states)[:, 0] for choice in joint], 1)
    own = mixer(values.amax(-1), states)[:, 0]
    torch.testing.assert_close(own, every.amax(1))


def test_invalid_actions_are_never_the_best():
    q = torch.tensor([[[1.0, 5.0, 2.0]], [[1.0, 5.0, 2.0]], [[1.0, 5.0, 2.0]]])
    selector = torch.tensor([[[3.0, 9.0, 1.0]]]).expand(3, 1, 3)
    valid = torch.tensor([[[True, False, True]], [[True, True, True]], [[False, False, False]]])
    assert best_values(q, selector, valid).tolist() == [[1.0], [5.0], [5.0]], "where nothing is valid, all count"
    assert best_values(q, q, valid).tolist() == [[2.0], [5.0], [5.0]]
    assert best_values(q, selector, None).tolist() == [[5.0]] * 3
