"""Algorithms with memory that learn from replayed sequences: configs, buffers, exact resume, several agents."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import PendulumEnv

from rlframe.agents.dqn import R2D2TorchPolicy, R2D2Trainer
from rlframe.agents.dqn.r2d2_torch_policy import compute_q_values, h_function, h_inverse, r2d2_loss
from rlframe.agents.registry import get_trainer_class
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.examples.models.rnn_model import TorchRNNModel
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError
from rlframe.utils.torch_utils import sequence_mask

LSTM = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 5}
SMALL = {
    "seed": 5, "num_workers": 0, "learning_starts": 40, "timesteps_per_iteration": 40, "train_batch_size": 60,
    "log_sys_usage": False, "min_iter_time_s": 0, "burn_in": 3, "zero_init_states": False,
}  # fmt: skip
HEADS = {"hiddens": [8]}
NETWORKS = {"Q_model": {"fcnet_hiddens": [8]}, "policy_model": {"fcnet_hiddens": [8]}}
MEMORY = {key: value for key, value in LSTM.items() if key != "max_seq_len"}
OWN = {
    "custom_model": TorchRNNModel, "custom_model_config": {"fc_size": 8, "lstm_state_size": 6}, "max_seq_len": 5
}  # fmt: skip
CASES = {
    "R2D2": ("R2D2", "CartPole-v1", {**HEADS, "model": LSTM, "prioritized_replay": True, "n_step": 2}),
    "R2D2, attention": ("R2D2", "CartPole-v1", {**HEADS, "model": {"use_attention": True, "max_seq_len": 5}}),
    "R2D2, a model of one's own": ("R2D2", "CartPole-v1", {**HEADS, "model": OWN}),
    "RNNSAC": ("RNNSAC", "CartPole-v1", {"Q_model": MEMORY, "policy_model": MEMORY, "model": {"max_seq_len": 5}}),
    "SAC": ("SAC", "Pendulum-v1", {**NETWORKS, "model": LSTM, "prioritized_replay": True, "horizon": 30}),
    "TD3": ("TD3", "Pendulum-v1", {"actor_hiddens": [8], "critic_hiddens": [8], "model": LSTM, "horizon": 30}),
    "DQN": ("DQN", "CartPole-v1", {**HEADS, "model": LSTM, "replay_sequence_overlap": 2}),
}


def make(name, **overrides):
    algorithm, env, config = CASES[name]
    config = {**copy.deepcopy(SMALL), **copy.deepcopy(config), **overrides}
    return get_trainer_class(algorithm)(config, env=env)


def same_weights(one, other):
    for key, array in one.get_policy().get_weights().items():
        np.testing.assert_array_equal(array, other.get_policy().get_weights()[key], err_msg=key)


class InFloat64(PendulumEnv):
    """Pendulum whose actions are float64."""

    def __init__(self, env_config=None):
        super().__init__()
        self.action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float64)


@pytest.mark.parametrize("name", ["TD3", "SAC"])
def test_actions_of_float64_are_learned_from(name):
    algorithm, _, config = CASES[name]
    model = {**LSTM, "lstm_use_prev_action": True}
    trainer = get_trainer_class(algorithm)(
        {**SMALL, **config, "model": model, "normalize_actions": name == "SAC"}, env=InFloat64
    )
    trainer.train()
    assert trainer.get_policy().num_updates > 0
    trainer.stop()


@pytest.mark.parametrize("noisy", [False, True])
def test_without_exploring_there_is_no_noise_behind_a_memory(noisy):
    policy = make("DQN", noisy=noisy, model={**LSTM, "fcnet_hiddens": [8]}).get_policy()
    states = [np.repeat(state[None], 2, axis=0) for state in policy.get_initial_state()]
    obs = np.ones((2, 4), np.float32)
    told = [
        policy.compute_actions(obs, states, explore=explore)[2]["action_dist_inputs"]
        for explore in (False, False, True, True)
    ]
    np.testing.assert_array_equal(told[0], told[1])
    assert np.array_equal(told[2], told[3]) != noisy


@pytest.mark.parametrize("name", CASES)
def test_training_goes_on_exactly(name, tmp_path):
    one = make(name)
    for _ in range(2):
        result = one.train()
    other = make(name, seed=6)
    other.restore(one.save(str(tmp_path)))
    for _ in range(2):
        a, b = one.train(), other.train()
        np.testing.assert_equal(a["info"]["learner"], b["info"]["learner"])
    same_weights(one, other)
    assert result["info"]["num_steps_trained"] > 0, "rows are counted, not sequences"
    stats = one.local_replay_buffer.stats()["policy_default_policy"]
    assert stats["num_entries"] > 10
    one.stop(), other.stop()


def test_one_agent_remembers_and_another_does_not():
    specs = {"plain": PolicySpec(config={"model": {"use_lstm": False}}), "recurrent": PolicySpec()}
    multiagent = {"policies": specs, "policy_mapping_fn": lambda agent, **_: "plain" if agent else "recurrent"}
    config = {**SMALL, **HEADS, "model": LSTM, "multiagent": multiagent, "env_config": {"num_agents": 2}}
    trainer = get_trainer_class("DQN")(config, env=MultiAgentCartPole)
    result = trainer.train()
    assert set(result["info"]["learner"]) == {"plain", "recurrent"}
    drawn = trainer.local_replay_buffer.replay().policy_batches
    assert "seq_lens" in drawn["recurrent"]
    assert "seq_lens" not in drawn["plain"]
    trainer.stop()


R2D2S = {
    "lr": 1e-4, "gamma": 0.997, "train_batch_size": 1280, "adam_epsilon": 1e-3, "num_workers": 2, "burn_in": 0,
    "batch_mode": "complete_episodes", "zero_init_states": True, "use_h_function": True, "h_function_epsilon": 1e-3,
    "prioritized_replay": False, "target_network_update_freq": 2500, "replay_sequence_length": -1,
    "replay_buffer_config": {"type": "LocalReplayBuffer", "capacity": 100_000},
}  # fmt: skip


RNNSACS = {
    "batch_mode": "complete_episodes", "zero_init_states": True, "burn_in": 0, "replay_sequence_length": -1,
    "train_batch_size": 256, "num_workers": 0, "target_network_update_freq": 0, "twin_q": True,
}  # fmt: skip


@pytest.mark.parametrize(("name", "wanted"), [("R2D2", R2D2S), ("RNNSAC", RNNSACS)])
def test_defaults_are_those_of_rllib(name, wanted):
    defaults = get_trainer_class(name).get_default_config()
    assert {key: defaults[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("name", "overrides", "said"),
    [
        ("R2D2", {"burn_in": 9, "replay_sequence_length": 9}, "burn_in=9 leaves nothing of replay_sequence_length=9"),
        (
            "SAC",
            {"model": {"use_lstm": True, "max_seq_len": 1}, "replay_sequence_length": 1, "burn_in": 0},
            "max_seq_len=1: a model with memory learns from sequences",
        ),
        ("R2D2", {"replay_sequence_overlap": 5}, "must be smaller than the 5 rows of a sequence behind burn-in"),
        ("R2D2", {"replay_sequence_length": 0}, "wanted -1, which is burn_in"),
        ("R2D2", {"batch_mode": "truncate_episodes"}, "sequences are cut from whole episodes; set 'complete_episodes'"),
        ("R2D2", {"num_atoms": 5}, "rescales expected values, not num_atoms=5"),
        (
            "R2D2",
            {"model": {"use_lstm": False}},
            "without a memory, but R2D2 learns from sequences; set model.use_lstm",
        ),
        ("R2D2", {"replay_buffer_config": {"type": "EpisodeReplayBuffer"}}, "leave it at 'LocalReplayBuffer'"),
        ("RNNSAC", {"batch_mode": "truncate_episodes"}, "RNNSAC's sequences are cut from whole episodes"),
        ("RNNSAC", {"Q_model": {}, "policy_model": {}}, "got no memory in Q_model, policy_model or model, but RNNSAC"),
        ("SAC", {"critic_batch_norm": True}, "would take its statistics of padded sequences; leave it out"),
        ("DQN", {"worker_side_prioritization": True}, "TD errors of single rows, but a model with memory learns"),
        ("DQN", {"multiagent": {"replay_mode": "lockstep"}, "prioritized_replay": False}, "lockstep' replays single r"),
    ],
)
def test_wrong_configs_are_refused_in_a_sentence(name, overrides, said):
    with pytest.raises(ConfigError, match=said):
        make(name, **overrides)


def rllibs_loss(policy, model, dist_class, train_batch):
    """R2D2's loss in the shape that RLlib's had, and programs' copies of it have."""
    states = [train_batch["state_in_0"], train_batch["state_in_1"]]
    lens, burn_in = train_batch["seq_lens"], policy.config["burn_in"]
    q, q_target = (
        compute_q_values(policy, made, train_batch, state_batches=states, seq_lens=lens, explore=False)[0]
        for made in (model, policy.target_models[model])
    )
    sequences = len(states[0])
    length = len(q) // sequences
    best = q_target.gather(1, q.argmax(1, keepdim=True)).squeeze(1)
    behind = (1.0 - train_batch["dones"].float()) * torch.cat([best[1:], best.new_zeros(1)])
    target = h_function(train_batch["rewards"] + policy.config["gamma"] * h_inverse(behind, 1e-3), 1e-3).detach()
    mask = sequence_mask(lens, length)[:, :-1].clone()
    mask[:, :burn_in] = False
    assert mask.any()
    chosen = q.gather(1, train_batch["actions"].long().unsqueeze(1)).squeeze(1)
    error = (chosen - target).reshape(sequences, length)[:, :-1] * mask
    assert torch.equal(mask, train_batch["valid_mask"].reshape(sequences, length)[:, :-1] & mask)
    weights = train_batch["weights"].reshape(sequences, length)[:, :-1]
    model.tower_stats["td_error"] = error.mean(-1)
    return (weights * error.square())[mask].mean()


def wrapped_loss(policy, model, dist_class, train_batch):
    return r2d2_loss(policy, model, dist_class, train_batch) * 2.0


@pytest.mark.parametrize("loss", [rllibs_loss, wrapped_loss])
def test_losses_of_programs_get_sequences_as_rllibs_did(loss):
    policy = R2D2TorchPolicy.with_updates(name="Own", loss_fn=loss)
    model = {**LSTM, "lstm_use_prev_action": True}
    config = {**SMALL, **HEADS, "model": model, "train_batch_size": 90}
    trainer = R2D2Trainer.with_updates(name="OwnR2D2", default_policy=policy)(config, env="CartPole-v1")
    before = trainer.get_policy().get_weights()
    trainer.train(), trainer.train()
    after = trainer.get_policy().get_weights()
    assert (after["lstm.weight_hh"] != before["lstm.weight_hh"]).any()
    trainer.stop()


def test_memories_that_only_the_model_knows_of_are_told_that_samples_are_too_short(caplog):
    with caplog.at_level("WARNING", logger="rlframe"):
        make("DQN", model=OWN, replay_sequence_overlap=0)
    assert "learns from sequences of 8 rows, but they end where a sample ends; set batch_mode='complete" in caplog.text
    caplog.clear()
    make("R2D2, a model of one's own"), make("DQN")
    assert "sample ends" not in caplog.text


def test_td_errors_of_single_rows_need_no_memory():
    rows = np.zeros((2, 4), np.float32)
    with pytest.raises(ValueError, match="whose values depend on what came before; wanted a policy without"):
        make("DQN").get_policy().compute_td_error(rows, [0, 1], [0.0, 0.0], rows, [False, False])


def test_actor_and_critics_share_one_memory():
    with pytest.warns(UserWarning, match="policy_model.lstm_cell_size=9 has no effect beside Q_model.lstm_cell_size=6"):
        trainer = make("RNNSAC", policy_model={**MEMORY, "lstm_cell_size": 9, "fcnet_hiddens": [7]})
    policy = trainer.get_policy()
    assert [state.shape for state in policy.get_initial_state()] == [(6,), (6,)]
    weights = policy.get_weights()
    assert weights["encoder.inner.hidden_0.weight"].shape == (8, 4)
    assert weights["actor.hidden_0.weight"].shape[0] == 7
    assert type(policy.inference).__name__ == "NumpyInference"


def test_sequences_are_as_long_as_asked_for():
    trainer = make("DQN", replay_sequence_length=9, replay_sequence_overlap=0, batch_mode="truncate_episodes")
    trainer.train()
    lens = [trainer.local_replay_buffer.replay()["seq_lens"].max() for _ in range(5)]
    assert max(lens) == 9
    assert trainer.get_policy().max_seq_len == 9 - 3, "a sequence begins where the one before has been learned from"
    assert trainer.config["batch_mode"] == "truncate_episodes", "what the user asked for"
    assert trainer.workers.local_worker().policy_config["batch_mode"] == "complete_episodes"
    trainer.stop()
