"""What every learning policy must do, for policies that act for groups of agents and learn from whole episodes."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

from rlframe.agents.qmix import QMixTorchPolicy
from rlframe.agents.qmix.qmix_policy import qmix_loss
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import padded_sequences
from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.numpy_policy import NumpyPolicy
from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError, UnsupportedSpaceException
from rlframe.utils.numpy import FLOAT_MIN
from tests.contract.test_policies import same
from tests.helpers.group_batches import FULL, PLAIN, A, H, N, config_of, episodes, flatten, group_obs, group_policy

CASES = [{}, {"double_q": False}, {"mixer": "vdn"}, {"mixer": None}, {"model": {"use_lstm": True}}]
every_policy = pytest.mark.parametrize("overrides", CASES, ids=lambda case: "-".join(map(str, case.items())) or "qmix")


def make(overrides, **more):
    return group_policy(**copy.deepcopy(overrides), **more)


def batch(overrides, lens=(4, 2, 1), seed=0):
    made = episodes(lens, seed)
    if overrides.get("model"):  # an LSTM has two states
        made["state_in_1"] = -made["state_in_0"]
    return made


def fresh(policy, rows):
    return {f"state_in_{i}": np.repeat(s[None], rows, 0) for i, s in enumerate(policy.get_initial_state())}


@every_policy
def test_same_seed_same_policy_same_learning(overrides):
    one, other = make(overrides), make(overrides)
    same(one.get_weights(), other.get_weights())
    for step in range(3):
        one.learn_on_batch(batch(overrides, seed=step))
        other.learn_on_batch(batch(overrides, seed=step))
    same(one.get_weights(), other.get_weights())
    another = make(overrides, seed=4)
    assert any(not np.array_equal(another.get_weights()[key], array) for key, array in one.get_weights().items())


@every_policy
def test_learning_changes_the_weights_and_not_the_target(overrides):
    policy = make(overrides)
    before, target = policy.get_weights(), policy.target_network.get_weights()
    same(target, before)
    stats = policy.learn_on_batch(batch(overrides))["learner_stats"]
    assert {"cur_lr", "grad_gnorm", "loss", "td_error_abs", "q_taken_mean", "target_mean"} <= set(stats)
    assert all(isinstance(value, float) for value in stats.values()), stats
    after = policy.get_weights()
    still = {key for key in before if np.array_equal(after[key], before[key])}
    assert all(key.startswith("agent.model.heads.value") for key in still), still  # state values of an LSTM's
    same(policy.target_network.get_weights(), target)
    policy.update_target()
    same(policy.target_network.get_weights(), after)


@every_policy
def test_learning_lowers_the_error_on_its_batch(overrides):
    policy = make(overrides, lr=3e-3)
    first = policy.learn_on_batch(batch(overrides))["learner_stats"]["loss"]
    for _ in range(150):
        last = policy.learn_on_batch(batch(overrides))["learner_stats"]["loss"]
    assert last < 0.3 * first


@every_policy
def test_padding_weighs_nothing(overrides):
    """A batch that is padded further, with garbage, is the same batch."""
    one, other = make(overrides), make(overrides)
    given = batch(overrides)
    padded = padded_sequences(given, 9)
    for column in padded.values():
        if len(column) == len(padded["valid_mask"]) and column.dtype == np.float32:
            column[~padded["valid_mask"]] = 7.0
    a, b = one.learn_on_batch(given)["learner_stats"], other.learn_on_batch(padded)["learner_stats"]
    assert a == pytest.approx(b, rel=1e-5)
    same(one.get_weights(), other.get_weights(), rtol=1e-5, atol=1e-7)


def test_an_episode_that_is_cut_off_goes_on_in_its_target():
    cut, ended = make({}, gamma=0.9), make({}, gamma=0.9)
    given, other = episodes((3,)), episodes((3,))
    assert given["discounts"].tolist() == pytest.approx([0.9] * 3)
    other["discounts"][-1] = 0.0
    assert cut.learn_on_batch(given)["learner_stats"]["target_mean"] != pytest.approx(
        ended.learn_on_batch(other)["learner_stats"]["target_mean"]
    )
    rows = episodes((3,))
    del rows["discounts"]
    rows["terminateds"], rows["truncateds"] = np.array([0, 0, 0], bool), np.array([0, 0, 1], bool)
    made = cut.postprocess_trajectory(rows)
    assert made["discounts"].tolist() == pytest.approx([0.9, 0.9, 0.9])
    rows["terminateds"], rows["truncateds"] = rows["truncateds"], rows["terminateds"]
    assert cut.postprocess_trajectory(rows)["discounts"].tolist() == pytest.approx([0.9, 0.9, 0.0])


@every_policy
def test_acting_in_numpy_is_acting_in_the_framework(overrides):
    policy = make(overrides)
    policy.learn_on_batch(batch(overrides))
    states = fresh(policy, 9)
    for seed in range(3):
        obs = flatten(group_obs(np.random.default_rng(seed), 9))
        values, _, after = policy.forward_with_memory(obs, states, explore=False)
        other, _, others = policy.forward_in_framework({"obs": obs, **states}, False)
        np.testing.assert_allclose(values, other, atol=1e-5)
        for one, two in zip(after, others, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)
        assert values.shape == (9, N * A)
        assert [state.shape for state in after] == [(9, N, H)] * len(after)
        states = {f"state_in_{index}": state for index, state in enumerate(after)}


@every_policy
def test_only_valid_actions_are_taken_and_all_of_them(overrides):
    policy = make(overrides, exploration_config={"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 1.0})
    observations = group_obs(np.random.default_rng(1), 5)
    obs = flatten(observations)
    greedy, _, extra = policy.compute_actions(obs, explore=False)
    values = extra["action_dist_inputs"].reshape(5, N, A)
    np.testing.assert_array_equal(np.stack(greedy, 1), values.argmax(-1))
    seen = np.zeros((5, N, A), bool)
    for _ in range(200):
        actions, _, extra = policy.compute_actions(obs, explore=True)
        assert isinstance(actions, tuple)
        assert extra["action_logp"].shape == extra["action_prob"].shape == (5,)
        for agent in range(N):
            seen[np.arange(5), agent, actions[agent]] = True
    masks = np.array([[agent["action_mask"] for agent in group] for group in observations], bool)
    np.testing.assert_array_equal(seen, masks)
    assert (values[~masks] == np.float32(FLOAT_MIN)).all()


def test_each_agent_explores_for_itself():
    half = {"type": "EpsilonGreedy", "initial_epsilon": 0.5, "final_epsilon": 0.5}
    policy = make({}, member=PLAIN, exploration_config=half)
    obs = np.repeat(flatten(group_obs(np.random.default_rng(1), 1, PLAIN), PLAIN), 4000, axis=0)
    greedy = np.stack(policy.compute_actions(obs, explore=False)[0], 1)
    strays = np.stack(policy.compute_actions(obs, explore=True)[0], 1) != greedy
    rate = 0.5 * (A - 1) / A  # a random action may be the greedy one
    assert strays.mean(0) == pytest.approx([rate] * N, abs=0.03)
    assert strays.all(1).mean() == pytest.approx(rate**N, abs=0.02), "not all of them at once"


@every_policy
def test_memory_is_carried_on(overrides):
    policy = make(overrides)
    obs = group_obs(np.random.default_rng(1), 1)[0]
    action, state, extra = policy.compute_single_action(obs, explore=False)
    assert policy.action_space.contains(action)
    assert [part.shape for part in state] == [(N, H)] * len(state)
    _, further, again = policy.compute_single_action(obs, state, explore=False)
    assert not np.allclose(extra["action_dist_inputs"], again["action_dist_inputs"])
    assert not np.allclose(state[0], further[0])


@every_policy
def test_state_goes_on_bit_for_bit(overrides):
    policy, again = make(overrides), make(overrides, seed=99)
    for step in range(3):
        policy.learn_on_batch(batch(overrides, seed=step))
    obs = flatten(group_obs(np.random.default_rng(1), 20))
    policy.compute_actions(obs)
    again.set_state(copy.deepcopy(policy.get_state()))
    for step in range(3, 6):
        given = batch(overrides, seed=step)
        assert policy.learn_on_batch(given)["learner_stats"] == again.learn_on_batch(given)["learner_stats"]
    same(policy.get_weights(), again.get_weights())
    same(policy.target_network.get_weights(), again.target_network.get_weights())
    for _ in range(3):
        np.testing.assert_array_equal(policy.compute_actions(obs)[0], again.compute_actions(obs)[0])


@every_policy
def test_gradients_applied_elsewhere_are_the_learner_step(overrides):
    one, other = make(overrides), make(overrides)
    gradients, info = one.compute_gradients(batch(overrides))
    assert len(info["learner_stats"]) > 1
    one.apply_gradients(gradients)
    other.learn_on_batch(batch(overrides))
    same(one.get_weights(), other.get_weights(), rtol=0, atol=1e-6)


@every_policy
def test_nan_names_its_column_and_leaves_the_weights(overrides):
    policy = make(overrides)
    policy.learn_on_batch(batch(overrides))
    before, wrong = policy.get_weights(), batch(overrides)
    column = "member_rewards" if overrides.get("mixer", "qmix") is None else "rewards"
    wrong[column][5] = np.nan
    with pytest.raises(NonFiniteError, match=rf"column '{column}' .* in row 5"):
        policy.learn_on_batch(wrong)
    same(policy.get_weights(), before)
    policy.learn_on_batch(batch(overrides))


@every_policy
def test_rows_that_were_not_postprocessed_are_learned_from(overrides):
    one, other = make(overrides), make(overrides)
    rows = batch(overrides)
    rows = SampleBatch({key: rows[key] for key in rows if key not in ("discounts", "member_rewards")})
    rows["dones"] = np.array([False, False, False, True, False, True, False])
    rows["infos"] = np.array([{"_group_rewards": [row, 1.0, -row]} for row in range(7)], dtype=object)
    columns = set(rows)
    raw = one.learn_on_batch(rows)["learner_stats"]
    assert set(rows) == columns
    assert raw == other.learn_on_batch(other.postprocess_trajectory(rows))["learner_stats"]


@every_policy
def test_clipped_gradients_report_their_norm(overrides):
    free, clipped = make(overrides, grad_clip=None), make(overrides, grad_clip=1e-3)
    assert "grad_gnorm" not in free.learn_on_batch(batch(overrides))["learner_stats"]
    stats = clipped.learn_on_batch(batch(overrides))["learner_stats"]
    assert stats["grad_gnorm"] == stats["grad_norm"] > 1e-3  # RLlib's QMIX has the second name
    gradients, _ = clipped.compute_gradients(batch(overrides))
    found = np.sqrt(sum(float(np.square(g).sum()) for g in gradients if g is not None))
    np.testing.assert_allclose(found, 1e-3, rtol=1e-3)


def test_learning_rate_follows_its_schedule():
    policy = make({}, lr_schedule=[[0, 1e-3], [100, 0.0]])
    policy.on_global_var_update({"timestep": 50})
    assert policy.learn_on_batch(episodes())["learner_stats"]["cur_lr"] == pytest.approx(5e-4)
    policy.on_global_var_update({"timestep": 200})
    before = policy.get_weights()
    policy.learn_on_batch(episodes())
    same(policy.get_weights(), before)


def test_weights_that_do_not_fit_change_nothing():
    policy = make({})
    before = policy.get_weights()
    with pytest.raises(ValueError, match=r"agent.inputs.weight is \(3, 3\), wanted"):
        policy.set_weights({**before, "agent.inputs.weight": np.zeros((3, 3), np.float32)})
    same(policy.get_weights(), before)


@every_policy
@pytest.mark.parametrize("devices", [2, 3])
def test_shares_of_several_devices_add_up(overrides, devices):
    single, several = make(overrides), make(overrides, num_gpus=devices, _fake_gpus=True)
    for step in range(3):
        given = batch(overrides, (4, 2, 1, 3), step)
        mine, theirs = several.learn_on_batch(given), single.learn_on_batch(given)
        assert mine["learner_stats"] == pytest.approx(theirs["learner_stats"], rel=1e-4, abs=1e-5)
    same(several.get_weights(), single.get_weights(), rtol=1e-4, atol=1e-6)


def spaces(member, action, n_agents=N):
    space = member if n_agents is None else gym.spaces.Tuple([member] * n_agents)
    actions = action if n_agents is None else gym.spaces.Tuple([action] * N)
    return get_preprocessor(space)(space).observation_space, actions


@pytest.mark.parametrize(
    ("obs_and_actions", "message"),
    [
        (spaces(PLAIN, gym.spaces.Discrete(A), None), r"groups of agents.*got Box.*env.with_agent_groups\(\{"),
        (spaces(PLAIN, gym.spaces.Box(-1, 1, (2,))), "Discrete actions, got Box.*or discretise"),
        (spaces(PLAIN, gym.spaces.Discrete(A), 2), "observation space has 2 parts and its action space 3"),
        (spaces(gym.spaces.Dict({"seen": PLAIN}), gym.spaces.Discrete(A)), "keys 'seen'; QMIX reads \"obs\""),
        (spaces(FULL, gym.spaces.Discrete(A + 1)), '"action_mask" has 4 numbers, wanted 5'),
    ],
)
def test_spaces_that_are_no_groups_are_refused(obs_and_actions, message):
    with pytest.raises(UnsupportedSpaceException, match=message):
        QMixTorchPolicy(*obs_and_actions, config_of())


@pytest.mark.parametrize("of", ["observation", "action"])
def test_members_with_different_spaces_are_refused(of):
    parts = [PLAIN, gym.spaces.Box(-1, 1, (3,), np.float32) if of == "observation" else PLAIN]
    space = gym.spaces.Tuple(parts)
    actions = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Discrete(3 if of == "action" else 2)])
    with pytest.raises(UnsupportedSpaceException, match=f"need the same {of} space; got .* and .* for agent 1: make"):
        QMixTorchPolicy(get_preprocessor(space)(space).observation_space, actions, config_of())


def test_filters_would_change_masks_and_are_refused():
    with pytest.raises(ConfigError, match="got 'MeanStdFilter', which would change the action masks"):
        make({}, observation_filter="MeanStdFilter")
    make({}, member=PLAIN, observation_filter="MeanStdFilter")


class Linear(TorchModelV2, nn.Module):
    """A network of one's own, without memory."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layer = nn.Linear(obs_space.shape[0], num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs_flat"]), state


def test_agents_may_have_a_network_of_ones_own():
    policy = make({}, model={"custom_model": Linear}, lr=1e-2)
    assert policy.get_initial_state() == []
    given = episodes()
    del given["state_in_0"]
    first = policy.learn_on_batch(given)["learner_stats"]["loss"]
    for _ in range(100):
        last = policy.learn_on_batch(given)["learner_stats"]["loss"]
    assert last < 0.7 * first
    observations = group_obs(np.random.default_rng(1), 5)
    actions, states, _ = policy.compute_actions(flatten(observations), explore=False)
    assert states == []
    weights = policy.get_weights()
    for row, group in enumerate(observations):
        for number, agent in enumerate(group):
            values = weights["agent.model.layer.weight"] @ agent["obs"] + weights["agent.model.layer.bias"]
            assert actions[number][row] == np.where(agent["action_mask"], values, -np.inf).argmax()


def test_networks_that_want_past_actions_are_refused():
    with pytest.raises(ConfigError, match="got a network that wants 'prev_actions'"):
        make({}, model={"use_lstm": True, "lstm_use_prev_action": True})


def test_an_agent_without_a_valid_action_is_named():
    policy = make({})
    group = group_obs(np.random.default_rng(0), 1)[0]
    group[1]["action_mask"][:] = 0
    with pytest.raises(EnvError, match='agent number 1 of a group has an "action_mask" of zeros'):
        policy.compute_single_action(group)


def test_workers_without_a_framework_act_as_the_policy_does():
    policy = make({})
    policy.learn_on_batch(batch({}))
    recipe = pickle.loads(pickle.dumps(policy.acting_recipe()))
    worker = NumpyPolicy(policy.observation_space, policy.action_space, policy.config, recipe=recipe)
    worker.set_weights(policy.get_weights())
    obs, inputs = flatten(group_obs(np.random.default_rng(1), 9)), fresh(policy, 9)
    for _ in range(2):
        (actions, columns), (others, beside) = (p.act_on_rows(obs, True, None, inputs) for p in (policy, worker))
        np.testing.assert_array_equal(actions, others)
        same(columns, beside)
    rows = episodes((3,))
    del rows["discounts"]
    rows["terminateds"] = rows["truncateds"] = np.zeros(3, bool)
    assert worker.postprocess_trajectory(rows)["discounts"].tolist() == pytest.approx([policy.config["gamma"]] * 3)
    assert make({"model": {"custom_model": Linear}}).acting_recipe() is None


@pytest.mark.parametrize("member", [FULL, PLAIN], ids=["masks", "plain"])
def test_a_loss_of_ones_own_is_tried_on_rows_of_zeros_and_learned_from(member):
    def halved(policy, model, dist_class, train_batch):
        return 0.5 * qmix_loss(policy, model, dist_class, train_batch).losses["team"]

    space = gym.spaces.Tuple([member] * N)
    cls = QMixTorchPolicy.with_updates(name="Halved", loss_fn=halved)
    policy = cls(
        get_preprocessor(space)(space).observation_space, gym.spaces.Tuple([gym.spaces.Discrete(A)] * N), config_of()
    )
    assert policy.loss_initialized()
    before = policy.get_weights()
    policy.learn_on_batch(episodes(member=member))
    assert any((policy.get_weights()[name] != array).any() for name, array in before.items())
