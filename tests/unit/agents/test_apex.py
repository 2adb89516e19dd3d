"""APEX and APEX_DDPG in one process: defaults, mistakes, exact resume, and the same plan over SAC and TD3."""

import copy

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.ddpg import TD3_DEFAULT_CONFIG, ApexDDPGTrainer, DDPGTorchPolicy, TD3Trainer
from rlframe.agents.dqn import ApexTrainer, DQNTorchPolicy, DQNTrainer, SimpleQTrainer
from rlframe.agents.dqn.apex import apex_execution_plan
from rlframe.agents.dqn.dqn_policy import build_q_losses
from rlframe.agents.sac import SACTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.numpy_policy import NumpyPolicy
from rlframe.policy.policy import PolicySpec
from rlframe.replay import per_policy
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.utils.errors import ConfigError
from tests.helpers.frameworks import needs_tf

SMALL = {
    "seed": 5,
    "num_workers": 0,
    "learning_starts": 40,
    "timesteps_per_iteration": 80,
    "train_batch_size": 16,
    "rollout_fragment_length": 10,
    "target_network_update_freq": 60,
    "optimizer": {"num_replay_buffer_shards": 2},
    "replay_buffer_config": {"capacity": 1000},
    "log_sys_usage": False,
}
HIDDEN = {"actor_hiddens": [16], "critic_hiddens": [16]}
NETWORKS = {
    "APEX": {"model": {"fcnet_hiddens": [16]}, "hiddens": [16]},
    "APEX_DDPG": HIDDEN,
    "TD3": HIDDEN,
    "SAC": {"Q_model": {"fcnet_hiddens": [16]}, "policy_model": {"fcnet_hiddens": [16]}},
}
#: As a program of RLlib's derives them: defaults in a dict, the plan beside it.
APEX_TD3 = TD3Trainer.with_updates(
    name="APEX_TD3",
    default_config={**TD3_DEFAULT_CONFIG, "optimizer": {"num_replay_buffer_shards": 3, "max_weight_sync_delay": 400}},
    execution_plan=apex_execution_plan,
)
APEX_SAC = SACTrainer.with_updates(name="APEX_SAC", execution_plan=apex_execution_plan)
TRAINERS = {"APEX": ApexTrainer, "APEX_DDPG": ApexDDPGTrainer, "TD3": APEX_TD3, "SAC": APEX_SAC}


def make(name="APEX", env=None, **overrides):
    config = {**copy.deepcopy(SMALL), **copy.deepcopy(NETWORKS[name]), **overrides}
    return TRAINERS[name](config, env=env or ("CartPole-v1" if name == "APEX" else "Pendulum-v1"))


RLLIBS = {
    "optimizer": {"max_weight_sync_delay": 400, "num_replay_buffer_shards": 4, "debug": False},
    "n_step": 3, "num_workers": 32, "learning_starts": 50_000, "train_batch_size": 512, "rollout_fragment_length": 50,
    "target_network_update_freq": 500_000, "timesteps_per_iteration": 25_000, "worker_side_prioritization": True,
    "training_intensity": None, "prioritized_replay": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("trainer", "exploration"),
    [(ApexTrainer, "PerWorkerEpsilonGreedy"), (ApexDDPGTrainer, "PerWorkerOrnsteinUhlenbeckNoise")],
)
def test_defaults_are_those_of_rllib(trainer, exploration):
    defaults = trainer.get_default_config()
    assert {key: defaults[key] for key in RLLIBS} == RLLIBS
    assert defaults["exploration_config"]["type"] == exploration
    assert defaults["replay_buffer_config"]["capacity"] == 2_000_000  # RLlib's buffer_size


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"optimizer": {"num_replay_buffer_shards": 0}}, "optimizer.num_replay_buffer_shards: got 0.*>= 1"),
        ({"optimizer": {"num_replay_shards": 2}}, "did you mean optimizer.num_replay_buffer_shards"),
        (
            {"replay_buffer_config": {"capacity": 1}},
            "capacity=1 leaves nothing for some of optimizer.num_replay_buffer_sh",
        ),
        ({"replay_buffer_config": {"type": "EpisodeReplayBuffer"}}, "is for whole episodes; leave it at 'ReplayActor'"),
        ({"num_gpus": 2}, "num_gpus=2 .* the one learner takes num_gpus=1"),
        ({"prioritized_replay": False}, "worker_side_prioritization=True needs prioritized_replay=True"),
    ],
)
def test_mistakes_say_what_to_do(overrides, said):
    with pytest.raises(ConfigError, match=said):
        make(**overrides)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("trainer_class", [DQNTrainer, SimpleQTrainer])
def test_options_that_say_what_one_buffer_is_are_no_mistake(trainer_class):
    trainer = trainer_class({"optimizer": {"num_replay_buffer_shards": 1, "debug": False}}, env="CartPole-v1")
    assert trainer.config["optimizer"]["num_replay_buffer_shards"] == 1
    trainer.stop()


def test_plans_that_do_not_read_the_options_refuse_them():
    with pytest.raises(ConfigError, match=r"optimizer: got .*num_replay_.* does not read; .*apex_execution"):
        DQNTrainer({"optimizer": {"num_replay_buffer_shards": 2}}, env="CartPole-v1")
    with pytest.raises(
        ConfigError, match=r"type='ReplayActor' is for the plan of APEX .* leave it at 'LocalReplayBuffer"
    ):
        DQNTrainer({"replay_buffer_config": {"type": "ReplayActor"}}, env="CartPole-v1")


def test_a_policy_of_the_users_own_may_read_optimizer_whatever_the_plan():
    seen = []

    def optimizer(policy, config):
        seen.append(config["optimizer"]["sgd_momentum"])
        return DQNTorchPolicy.optimizer(policy)

    derived = DQNTorchPolicy.with_updates(name="Momentum", optimizer_fn=optimizer)
    policies = {"default_policy": (derived, None, None, {})}
    DQNTrainer(
        {"optimizer": {"sgd_momentum": 0.9}, "framework": "torch", "multiagent": {"policies": policies}},
        env="CartPole-v1",
    ).stop()
    assert seen == [0.9]


@pytest.mark.parametrize(
    ("name", "framework"),
    [*((name, "torch") for name in TRAINERS), pytest.param("APEX", "tf", marks=[needs_tf, pytest.mark.slow])],
)
def test_one_process_samples_stores_and_learns_and_goes_on_exactly(name, framework, tmp_path):
    trainer = make(name, framework=framework)
    result = trainer.train()
    shards = trainer.local_replay_buffer
    assert shards.num_shards == trainer.config["optimizer"]["num_replay_buffer_shards"] == len(shards.buffers)
    assert sum(buffer.num_added for buffer in shards.buffers) == result["timesteps_total"] == 80
    assert result["info"]["num_steps_trained"] > 0
    assert result["info"]["replay_shard_0"]["policy_default_policy"]["num_entries"] == shards.buffers[0].num_added
    (explores,) = result["info"]["exploration_infos"]
    assert explores["last_timestep"] > 0
    assert "rng" not in explores
    if name == "APEX":
        assert 0 < result["info"]["num_target_updates"] < result["info"]["num_steps_trained"] // 60 + 1
    again = make(name, framework=framework)
    again.restore(trainer.save(str(tmp_path)))
    wanted, got = trainer.train(), again.train()
    np.testing.assert_equal(got["info"]["learner"], wanted["info"]["learner"])
    assert got["hist_stats"] == wanted["hist_stats"]


def test_priorities_go_to_the_shard_that_was_drawn_from():
    trainer = make()
    trainer.train()
    for buffer in trainer.local_replay_buffer.buffers:
        buffer.check_invariants()
        powers = buffer.get_state()["buffers"]["default_policy"]["powers"]
        assert len(np.unique(powers)) > 5


def rows_to_prioritize(policy, rows=30):
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(rows + 1, 4)).astype(np.float32)
    ended = np.zeros(rows, bool)
    ended[-1] = True
    columns = {"obs": obs[:-1], "new_obs": obs[1:], "actions": rng.integers(2, size=rows)}
    columns |= {"rewards": rng.normal(size=rows).astype(np.float32), "dones": ended, "terminateds": ended}
    return SampleBatch({**columns, "truncateds": ~ended & False, "eps_id": np.zeros(rows, np.int64)})


def test_workers_prioritize_in_numpy_as_the_framework_would_with_its_network_as_target():
    policy = make().get_policy()
    policy.update_target()
    recipe = policy.acting_recipe()
    worker = NumpyPolicy(policy.observation_space, policy.action_space, dict(policy.config), recipe=recipe)
    worker.set_weights(policy.get_weights())
    got = worker.postprocess_trajectory(rows_to_prioritize(policy))
    wanted = policy.postprocess_trajectory(rows_to_prioritize(policy))
    np.testing.assert_allclose(got["weights"], wanted["weights"], rtol=1e-4)
    assert got["weights"].min() >= policy.config["prioritized_replay_eps"]


def my_loss(policy, model, dist_class, train_batch):
    return 2 * build_q_losses(policy, model, dist_class, train_batch)


def loss_without_td_errors(policy, model, dist_class, train_batch):
    return model.from_batch(train_batch)[0].mean()


@pytest.mark.parametrize(("loss", "atoms"), [(None, 5), (my_loss, 1)])
def test_other_td_errors_need_the_framework_on_workers(loss, atoms):
    policy = DQNTorchPolicy if loss is None else DQNTorchPolicy.with_updates(name="Mine", loss_fn=loss)
    trainer = ApexTrainer.with_updates(default_policy=policy)(
        {**copy.deepcopy(SMALL), **NETWORKS["APEX"], "num_atoms": atoms}, env="CartPole-v1"
    )
    assert trainer.get_policy().acting_recipe() is None
    assert trainer.train()["info"]["learner"]


def test_losses_that_tell_no_td_errors_say_what_to_do():
    policy = DQNTorchPolicy.with_updates(name="Mine", loss_fn=loss_without_td_errors)
    with pytest.raises(ValueError, match=r"loss tells no td_error.*or set worker_side_prioritization=False"):
        ApexTrainer.with_updates(default_policy=policy)(copy.deepcopy(SMALL), env="CartPole-v1").train()


def test_first_priorities_of_remote_workers_have_the_targets_of_what_they_act_by():
    config = ApexDDPGTrainer.get_default_config()
    config |= {**HIDDEN, "seed": 1, "num_workers": 1, "log_sys_usage": False}
    make_env = {"env_creator": lambda _: gym.make("Pendulum-v1")}
    worker = RolloutWorker(**make_env, policy_config=config, worker_index=1, num_workers=1)
    worker.add_policies(PolicySpec(policy_class=DDPGTorchPolicy))
    policy = worker.policy_map["default_policy"]
    worker.set_weights({"default_policy": {name: array + 1 for name, array in policy.get_weights().items()}})
    states = policy.model.state_dict(), policy.target_model.state_dict()
    assert states[0].keys() == states[1].keys()
    for name, array in states[0].items():
        np.testing.assert_array_equal(states[1][name], array, err_msg=name)
    worker.stop()


def test_checkpoints_of_another_number_of_shards_say_what_to_set(tmp_path, caplog):
    path = make().save(str(tmp_path))
    other = make(optimizer={"num_replay_buffer_shards": 3})
    other.restore(path)
    other.train()
    assert "has 2 shards, wanted 3; set optimizer.num_replay_buffer_shards" in caplog.text
    empty = make(optimizer={"num_replay_buffer_shards": 3}, store_buffer_in_checkpoints=False)
    empty.restore(path)
    assert empty.train()["timesteps_total"] == 80


def test_several_agents_have_rows_of_their_own_in_each_shard():
    trainer = make(
        env=MultiAgentCartPole,
        env_config={"num_agents": 2},
        multiagent={
            "policies": {"even": PolicySpec(), "odd": PolicySpec()},
            "policy_mapping_fn": lambda agent_id, episode, worker, **kwargs: "odd" if agent_id % 2 else "even",
        },
    )
    result = trainer.train()
    assert set(result["info"]["learner"]) == {"even", "odd"}
    assert all(set(buffer.replay_buffers) == {"even", "odd"} for buffer in trainer.local_replay_buffer.buffers)


def test_memories_replay_sequences_from_shards():
    model = {"fcnet_hiddens": [16], "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5}
    result = make(model=model, hiddens=[], worker_side_prioritization=False, train_batch_size=20).train()
    assert result["info"]["num_steps_trained"] > 0


def test_a_plan_around_the_plan_finds_its_shards_again_when_it_is_built_anew():
    def plan(workers, config):
        return apex_execution_plan(workers, config)

    trainer = ApexTrainer.with_updates(name="Mine", execution_plan=plan)(
        {**copy.deepcopy(SMALL), **NETWORKS["APEX"], "replay_buffer_config": None}, env="CartPole-v1"
    )
    assert trainer.local_replay_buffer is None
    stored = trainer.train()["info"]["replay_shard_0"]["policy_default_policy"]["num_entries"]
    trainer.train_exec_impl = trainer._make_plan()
    after = trainer.train()["info"]["replay_shard_0"]["policy_default_policy"]["num_entries"]
    assert after > stored > 0


def test_shards_share_the_memory_that_there_is(monkeypatch):
    monkeypatch.setattr(per_policy, "memory_bytes", lambda: 40_000)
    rows = SampleBatch({"obs": np.zeros((4, 10), np.float32)})
    LocalReplayBuffer(num_shards=1, capacity=500).add_batch(rows)
    with pytest.raises(ValueError, match="memory"):  # each takes as much as the one did
        LocalReplayBuffer(num_shards=4, capacity=4 * 500).add_batch(rows)
