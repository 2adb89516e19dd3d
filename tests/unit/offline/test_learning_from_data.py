"""Trainers that write what they sample, and learn from what is read."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.registry import get_trainer_class
from rlframe.agents.sac import SACTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.offline import EpisodeReader, InputReader, JsonReader, JsonWriter, OutputWriter
from rlframe.offline.datasets import convert_dataset
from rlframe.offline.io_context import IOContext
from rlframe.offline.sources import make_reader
from rlframe.tune.registry import register_input
from rlframe.utils.errors import CheckpointError, ConfigError, DataError
from tests.helpers.frameworks import TORCH_FIRST
from tests.helpers.workers import SMALL

WRITES = {"rollout_fragment_length": 50, "train_batch_size": 100, "model": SMALL, "seed": 0}
READS = {
    "learning_starts": 0, "timesteps_per_iteration": 200, "train_batch_size": 16, "hiddens": [8], "model": SMALL,
    "n_step": 1, "seed": 0, "min_iter_time_s": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Returns a directory with 400 rows of CartPole."""
    directory = tmp_path_factory.mktemp("data")
    trainer = PGTrainer({**WRITES, "output": str(directory), "evaluation_interval": 1}, env="CartPole-v1")
    for _ in range(4):
        trainer.train()
    trainer.stop()
    return str(directory)


class Unsteppable(gym.Wrapper):
    """CartPole that must not be stepped."""

    def __init__(self, env_config):
        super().__init__(gym.make("CartPole-v1"))

    def step(self, action):
        raise AssertionError("stepped")


def test_all_that_is_sampled_is_written_and_nothing_else(written):
    batches = list(JsonReader(written).read_all_files())
    assert sum(batch.count for batch in batches) == 400  # evaluation's episodes are not among them
    for batch in batches:
        assert {"obs", "actions", "rewards", "dones", "action_logp", "eps_id", "t", "infos"} <= set(batch)
        assert batch["obs"].shape == (batch.count, 4)


def test_a_trainer_learns_from_files_and_steps_no_environment(written):
    trainer = DQNTrainer({**READS, "input": written}, env=Unsteppable)
    before = trainer.get_policy().get_weights()
    result = trainer.train()
    assert result["timesteps_total"] == 200
    assert result["num_healthy_workers"] == 0
    assert np.isnan(result["episode_reward_mean"])
    after = trainer.get_policy().get_weights()
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    estimates = result["off_policy_estimator"]
    assert set(estimates["is"]) == {"V_prev", "V_step_IS", "V_gain_est"}
    assert set(estimates["wis"]) == {"V_prev", "V_step_WIS", "V_gain_est"}
    trainer.stop()


def test_without_an_environment_spaces_are_enough_and_evaluation_runs_one(written):
    spaces = {
        "observation_space": gym.spaces.Box(-10, 10, (4,), np.float32), "action_space": gym.spaces.Discrete(2)
    }  # fmt: skip
    config = {**READS, **spaces, "input": [written], "input_evaluation": [], "shuffle_buffer_size": 3}
    config |= {"evaluation_interval": 1, "evaluation_num_episodes": 2, "evaluation_config": {"env": "CartPole-v1"}}
    trainer = DQNTrainer(config)
    result = trainer.train()
    assert result["evaluation"]["episodes_this_iter"] == 2
    assert result["off_policy_estimator"] == {}
    trainer.stop()


def test_trainers_evaluate_in_their_own_environment_beside_the_data(written):
    trainer = DQNTrainer({**READS, "input": written, "input_evaluation": []}, env="CartPole-v1")
    evaluated = trainer.evaluate()["evaluation"]
    assert evaluated["episode_reward_mean"] > 0
    trainer.stop()


def test_a_resumed_run_reads_and_learns_on_as_an_unbroken_one(written, tmp_path):
    config = {**READS, "input": written, "shuffle_buffer_size": 4}
    one = DQNTrainer(config, env="CartPole-v1")
    one.train()
    path = one.save(str(tmp_path))
    one.train()
    other = DQNTrainer(config, env="CartPole-v1")
    other.restore(path)
    other.train()
    weights = other.get_policy().get_weights()
    for name, array in one.get_policy().get_weights().items():
        np.testing.assert_array_equal(weights[name], array, err_msg=name)


def test_trajectories_are_postprocessed_where_that_is_asked_for(tmp_path):
    line = {"type": "SampleBatch", "obs": [[0, 0, 0, 0.1]] * 4, "actions": [0, 1, 0, 1], "rewards": [1.0, 1, 1, 1],
            "dones": [False, True, False, True]}  # fmt: skip
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    config = {**WRITES, "input": str(tmp_path), "postprocess_inputs": True, "gamma": 0.5, "input_evaluation": []}
    trainer = PGTrainer(config, env="CartPole-v1")
    batch = trainer.workers.local_worker().sample()
    np.testing.assert_allclose(batch["advantages"], [1.5, 1.0, 1.5, 1.0])
    assert np.isfinite(trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]["policy_loss"])


@pytest.mark.parametrize(
    ("config", "read"),
    [({}, [1.0, -0.5]), ({"actions_in_input_normalized": True}, [2.0, -1.0]),
     ({"normalize_actions": False, "clip_actions": True}, [2.0, -1.0])],
)  # fmt: skip
def test_actions_come_into_the_policys_space(config, read, tmp_path):
    line = {"type": "SampleBatch", "obs": [[0.0, 0, 0]] * 2, "actions": [[2.0], [-1.0]]}
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    config = {**config, "input": str(tmp_path), "input_evaluation": [], "model": SMALL, "num_workers": 0}
    trainer = PPOTrainer(config, env="Pendulum-v1")
    np.testing.assert_allclose(trainer.workers.local_worker().sample()["actions"], np.reshape(read, (2, 1)))


def test_actions_of_another_shape_are_brought_into_it_or_told(tmp_path):
    config = {"input": str(tmp_path), "input_evaluation": [], "model": SMALL, "num_workers": 0}
    (tmp_path / "data.json").write_text('{"type": "SampleBatch", "obs": [[0, 0, 0]], "actions": [1]}\n')
    assert PPOTrainer(config, env="Pendulum-v1").workers.local_worker().sample()["actions"].shape == (1, 1)
    (tmp_path / "data.json").write_text('{"type": "SampleBatch", "obs": [[0, 0, 0]], "actions": [[1, 1]]}\n')
    with pytest.raises(DataError, match=r"'actions' of shape \(2,\) by row, wanted \(1,\)"):
        PPOTrainer(config, env="Pendulum-v1").workers.local_worker().sample()


def test_actions_beyond_the_environments_are_told_once(tmp_path, caplog):
    line = {"type": "SampleBatch", "obs": [[0.0, 0, 0]] * 2, "actions": [[20.0], [-1.0]]}
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    config = {"input": str(tmp_path), "input_evaluation": [], "model": SMALL, "num_workers": 0}
    with caplog.at_level("WARNING", logger="rlframe.offline.preparing"):
        worker = PPOTrainer(config, env="Pendulum-v1").workers.local_worker()
        worker.sample()
        worker.sample()
    assert [record.message for record in caplog.records if "in other units" in record.message] == [
        "input: got actions from -1 to 20, and the action space is Box(-2.0, 2.0, (1,), float32); are they in other "
        "units? Of actions that are as policies choose them, say actions_in_input_normalized"
    ]


@pytest.mark.parametrize("action", [2, -1, 0.5, "left"])
def test_actions_that_are_none_of_the_choices_are_told(action, tmp_path):
    line = {"type": "SampleBatch", "obs": [[0.0, 0, 0, 0]] * 2, "actions": [1, action]}
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    trainer = PPOTrainer(
        {"input": str(tmp_path), "input_evaluation": [], "model": SMALL, "num_workers": 0}, env="CartPole-v1"
    )
    with pytest.raises(DataError, match=r"got the action .*, wanted a whole number from 0 to 1 .*Discrete\(2\)"):
        trainer.workers.local_worker().sample()


def test_data_of_other_observations_are_told(tmp_path):
    (tmp_path / "data.json").write_text('{"type": "SampleBatch", "obs": [[0.0, 0]], "rewards": [0.0]}\n')
    trainer = DQNTrainer({**READS, "input": str(tmp_path)}, env="CartPole-v1")
    with pytest.raises(DataError, match=r"shape \(2,\) by row, wanted \(4,\)"):
        trainer.train()


def test_data_without_probabilities_are_learned_from_and_that_is_said(tmp_path, caplog):
    line = {"type": "SampleBatch", "obs": [[0.0] * 4] * 20, "new_obs": [[0.0] * 4] * 20, "actions": [0] * 20,
            "rewards": [1.0] * 20, "dones": [False] * 20}  # fmt: skip
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    trainer = DQNTrainer({**READS, "input": str(tmp_path)}, env="CartPole-v1")
    assert trainer.train()["off_policy_estimator"] == {}
    assert "without action_prob" in caplog.text


class Counting(InputReader):
    """Rows of CartPole, made up."""

    def __init__(self, ioctx):
        self.rows = int(ioctx.input_config.get("rows", 20))

    def next(self):
        return SampleBatch(
            {
                "obs": np.zeros((self.rows, 4), np.float32),
                "new_obs": np.zeros((self.rows, 4), np.float32),
                "actions": np.zeros(self.rows, np.int64),
                "rewards": np.ones(self.rows, np.float32),
                "dones": np.zeros(self.rows, bool),
            }
        )


class Kept(OutputWriter):
    batches: list = []  # noqa: RUF012

    def write(self, sample_batch):
        self.batches.append(sample_batch)


@pytest.mark.parametrize(
    "source",
    [Counting, lambda ioctx: Counting(ioctx), "made-up-rows", f"{__name__}.Counting", {Counting: 1.0}],
    ids=["class", "function", "registered", "dotted", "shares"],
)
def test_readers_of_the_users_own(source):
    register_input("made-up-rows", Counting)
    Kept.batches.clear()
    config = {**READS, "input": source, "input_config": {"rows": 7}, "input_evaluation": [], "output": lambda _: Kept()}
    trainer = DQNTrainer(config, env="CartPole-v1")
    assert trainer.workers.local_worker().sample().count == 7
    assert [batch.count for batch in Kept.batches] == [7]


def test_a_name_in_tunes_registry_is_found_without_a_ray_runtime():
    from ray.tune import registry

    registry.register_input("rows-of-tune", Counting)
    try:
        assert make_reader("rows-of-tune", IOContext(config={"input_config": {"rows": 5}})).next().count == 5
    finally:
        registry._global_registry.unregister("rllib_input", "rows-of-tune")


def test_shares_mix_data_and_sampling(written):
    shares = {written: 0.5, "sampler": 0.5}
    trainer = DQNTrainer({**READS, "input": shares, "input_evaluation": []}, env="CartPole-v1")
    counts = [trainer.workers.local_worker().sample().count for _ in range(40)]
    assert {4, 50} <= set(counts)
    assert trainer.workers.local_worker().get_metrics()  # of the episodes that were sampled


def test_what_an_algorithm_wrote_and_what_it_samples_are_learned_from_together(tmp_path):
    writer = DQNTrainer({**READS, "output": str(tmp_path)}, env="CartPole-v1")
    writer.train()
    writer.stop()
    shares = {str(tmp_path): 0.5, "sampler": 0.5}
    reader = DQNTrainer({**READS, "input": shares, "input_evaluation": []}, env="CartPole-v1")
    assert reader.train()["timesteps_total"] >= 200


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Returns a directory with 400 rows of Pendulum in Parquet."""
    directory = tmp_path_factory.mktemp("tables")
    config = {**WRITES, "output": str(directory), "output_config": {"format": "parquet"}, "num_workers": 0}
    trainer = PGTrainer(config, env="Pendulum-v1")
    for _ in range(4):
        trainer.train()
    trainer.stop()
    return str(directory)


@pytest.mark.parametrize(("normalize", "kind"), [(True, "json"), (False, "json"), (True, "npz"), (True, "hdf5")])
def test_lines_and_arrays_say_whether_their_actions_are_the_policys(normalize, kind, tmp_path):
    directory = str(tmp_path / "lines")
    config = {**WRITES, "normalize_actions": normalize, "clip_actions": not normalize, "num_workers": 0}
    writer = PGTrainer({**config, "output": directory}, env="Pendulum-v1")
    writer.train()
    writer.stop()
    written = np.concatenate([batch["actions"] for batch in JsonReader(directory).read_all_files()])
    assert "actions_normalized" not in next(JsonReader(directory).read_all_files())
    if kind != "json":
        pytest.importorskip("h5py")
        convert_dataset(directory, str(tmp_path / kind), kind)
        directory = str(tmp_path / kind)
    reader = PGTrainer({**config, "input": directory, "input_evaluation": []}, env="Pendulum-v1")
    read = [batch["actions"] for batch in reader.workers.local_worker().input_reader.read_all_files()]
    wanted = written if normalize else np.clip(written, -2.0, 2.0)
    np.testing.assert_array_equal(np.concatenate(read), wanted)


SAC_READS = {
    "Q_model": SMALL, "policy_model": SMALL, "learning_starts": 0, "timesteps_per_iteration": 20, "train_batch_size": 8,
    "input_evaluation": [], "num_workers": 0, "seed": 0, "rollout_fragment_length": 10, "min_iter_time_s": 0,
    "replay_buffer_config": {"capacity": 2000},
}  # fmt: skip


def test_tables_say_that_their_actions_are_the_policys(tables):
    trainer = SACTrainer({**SAC_READS, "input": tables}, env="Pendulum-v1")
    written = np.concatenate([batch["actions"] for batch in EpisodeReader(tables).read_all_files()])
    read = np.concatenate([batch["actions"] for batch in trainer.workers.local_worker().input_reader.read_all_files()])
    np.testing.assert_array_equal(read, written)
    assert not trainer.config["actions_in_input_normalized"]


@pytest.mark.parametrize("shuffle_rows", [0, 100])
def test_a_run_from_tables_resumes_exactly_and_goes_on_online(tables, shuffle_rows, tmp_path):
    """Of data, of data and sampling, and of sampling after data."""
    mixed = {**SAC_READS, "input": {tables: 0.5, "sampler": 0.5}, "input_config": {"shuffle_rows": shuffle_rows}}
    one = SACTrainer(mixed, env="Pendulum-v1")
    one.train()
    path = one.save(str(tmp_path))
    one.train()
    other = SACTrainer(mixed, env="Pendulum-v1")
    other.restore(path)
    other.train()
    weights = other.get_policy().get_weights()
    for name, array in one.get_policy().get_weights().items():
        np.testing.assert_array_equal(weights[name], array, err_msg=name)
    online = SACTrainer({**mixed, "input": "sampler"}, env="Pendulum-v1")
    online.restore(path)
    held = online.local_replay_buffer.num_added
    result = online.train()
    assert held > 0
    assert online.local_replay_buffer.num_added == held + 20
    assert result["timesteps_total"] > 20


def test_an_offline_run_of_dqn_goes_on_online(written, tmp_path):
    offline = DQNTrainer({**READS, "input": written, "input_evaluation": []}, env="CartPole-v1")
    offline.train()
    path = offline.save(str(tmp_path))
    online = DQNTrainer({**READS, "input": "sampler"}, env="CartPole-v1")
    online.restore(path)
    before = online.local_replay_buffer.num_added
    result = online.train()
    assert before == 200
    assert online.local_replay_buffer.num_added > before
    assert result["episodes_this_iter"] > 0


@pytest.mark.parametrize(
    ("config", "wanted"),
    [({}, 0.9), ({"n_step": 3}, 0.9), ({"n_step": 3, "input_config": {"n_step": 3}}, 0.9**3)],
    ids=["single", "reader-sums", "said"],
)
def test_rows_that_do_not_say_how_many_rewards_they_hold_hold_one(config, wanted, tmp_path):
    line = {"type": "SampleBatch", "obs": [[0.0] * 4] * 3, "new_obs": [[0.0] * 4] * 3, "actions": [0, 1, 0],
            "rewards": [1.0] * 3, "dones": [False, False, True]}  # fmt: skip
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    config = {**READS, "input_evaluation": [], "gamma": 0.9, "input": str(tmp_path), **config}
    batch = DQNTrainer(config, env="CartPole-v1").workers.local_worker().sample()
    np.testing.assert_allclose(batch["discounts"], [wanted, wanted, 0.0], rtol=1e-6)


def test_single_steps_are_discounted_by_the_readers_gamma(tmp_path):
    writer = DQNTrainer({**READS, "gamma": 0.5, "output": str(tmp_path)}, env="CartPole-v1")
    writer.train()
    writer.stop()
    reader = DQNTrainer({**READS, "gamma": 0.9, "input": str(tmp_path), "input_evaluation": []}, env="CartPole-v1")
    assert set(np.unique(reader.workers.local_worker().sample()["discounts"])) <= {np.float32(0.0), np.float32(0.9)}


@pytest.mark.parametrize("how", ["json", "parquet", "rows", "batches"])
def test_rllibs_dataset_input(how, written, tables, tmp_path):
    def load():
        if how == "rows":
            return [row for batch in EpisodeReader(tables).read_all_files() for row in batch.rows()]
        return list(EpisodeReader(tables).read_all_files())

    described = {"json": {"format": "json", "path": written}, "parquet": {"format": "parquet", "path": tables}}
    config = {**WRITES, "num_workers": 0, "input": "dataset", "input_evaluation": [],
              "input_config": described.get(how, {"loader_fn": load})}  # fmt: skip
    trainer = PGTrainer(config, env="CartPole-v1" if how == "json" else "Pendulum-v1")
    worker = trainer.workers.local_worker()
    state, batch = worker.input_reader.get_state(), worker.sample()
    assert batch.count >= 50
    worker.input_reader.set_state(state)
    np.testing.assert_array_equal(worker.sample()["obs"], batch["obs"])


LSTM = {"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "max_seq_len": 10}


@pytest.mark.parametrize("with_states", [True, False])
def test_policies_with_memory_learn_from_data(with_states, tmp_path, caplog):
    config = {**WRITES, "model": LSTM, "num_workers": 0, "sgd_minibatch_size": 50, "num_sgd_iter": 1}
    writer = PPOTrainer({**config, "output": str(tmp_path)}, env="CartPole-v1")
    writer.train()
    writer.stop()
    if not with_states:
        (file,) = tmp_path.glob("*.json")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            for key in [key for key in line if key.startswith(("state_", "seq_"))]:
                del line[key]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reader = PPOTrainer({**config, "input": str(tmp_path)}, env="CartPole-v1")
    assert reader.train()["off_policy_estimator"] == {}
    assert "a policy with memory" in caplog.text


def write_recalled(directory, states=None):
    """Writes 40 episodes of 12 steps: each action is what the step before showed, 0 at first."""
    rng = np.random.default_rng(0)
    writer = JsonWriter(str(directory))
    for episode in range(40):
        shown = rng.integers(2, size=13)
        columns = {
            "obs": shown[:-1, None].astype(np.float32), "new_obs": shown[1:, None].astype(np.float32),
            "actions": np.append(0, shown[:-2]), "rewards": np.ones(12, np.float32),
            "dones": np.arange(12) == 11, "eps_id": np.full(12, episode),
        }  # fmt: skip
        writer.write(SampleBatch({**columns, **({} if states is None else {"state_in_0": states})}))
    writer.close()


RECALLING = {
    "observation_space": gym.spaces.Box(0, 1, (1,), np.float32), "action_space": gym.spaces.Discrete(2),
    "model": {**LSTM, "fcnet_hiddens": [], "lstm_cell_size": 16}, "lr": 0.03, "train_batch_size": 240, "seed": 0,
    "min_iter_time_s": 0, "input_evaluation": [],
}  # fmt: skip


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("name", ["BC", "MARWIL"])
def test_a_memory_is_cloned_that_single_rows_do_not_tell(name, framework, tmp_path):
    """Of rows alone the loss is no smaller than log 2, by which a coin is told."""
    write_recalled(tmp_path, states=np.ones((12, 3), np.float32))  # those of another network
    config = {**RECALLING, "input": str(tmp_path), "framework": framework}
    trainer = get_trainer_class(name)({**config, **({} if name == "BC" else {"beta": 0.5, "vf_coeff": 0.0})})
    for _ in range(60):
        trainer.train()
    policy = trainer.get_policy()
    state, told = policy.get_initial_state(), []
    for shown in (1, 0, 0, 1, 1, 0):
        action, state, _ = policy.compute_single_action(np.float32([shown]), state, explore=False)
        told.append(int(action))
    assert told == [0, 1, 0, 0, 1, 1]
    trainer.stop()


def test_columns_of_earlier_steps_are_made_of_the_rows_before(tmp_path):
    write_recalled(tmp_path)
    model = {**RECALLING["model"], "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    trainer = get_trainer_class("BC")({**RECALLING, "model": model, "input": str(tmp_path)})
    batch = trainer.workers.local_worker().sample()
    assert batch["seq_lens"].tolist() == [10, 2]
    assert batch["state_in_0"].shape == (2, 16)
    np.testing.assert_array_equal(batch["prev_actions"], np.append(0, batch["actions"][:-1]))
    np.testing.assert_array_equal(batch["prev_rewards"], np.append(0, np.ones(11)))
    trainer.train()
    trainer.stop()


@pytest.mark.parametrize("name", ["DQN", "R2D2"])
def test_replayed_memories_learn_from_sequences_that_were_read(name, written):
    config = {**READS, "model": LSTM, "input": written, "input_evaluation": [], "timesteps_per_iteration": 40}
    config["num_workers"] = 0  # R2D2 has two by default
    trainer = get_trainer_class(name)(config, env="CartPole-v1")
    trainer.train()
    drawn = trainer.local_replay_buffer.replay()
    lens = drawn["seq_lens"]
    ends = np.cumsum(lens)
    for start, stop in zip(ends - lens, ends, strict=True):
        np.testing.assert_array_equal(drawn["new_obs"][start : stop - 1], drawn["obs"][start + 1 : stop])
    trainer.stop()


@pytest.fixture(scope="module")
def remembered(tmp_path_factory):
    """Returns a directory with 200 rows of CartPole that a policy with memory wrote, cut into sequences of 10."""
    directory = tmp_path_factory.mktemp("data")
    writer = PGTrainer({**WRITES, "model": LSTM, "output": str(directory)}, env="CartPole-v1")
    writer.train()
    writer.train()
    writer.stop()
    return str(directory)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("BC", {}),
        ("DQN", {}),
        ("MARWIL", {"model": LSTM}),
        ("R2D2", {"model": LSTM, "burn_in": 2}),
        ("SimpleQ", {"model": {**LSTM, "lstm_cell_size": 4}}),
    ],
    ids=["BC", "DQN", "MARWIL-memory", "R2D2", "SimpleQ-memory"],
)
def test_sequences_that_were_written_are_learned_from_with_and_without_memory(name, change, share, remembered):
    """Of data alone, and beside what the trainer samples, in one buffer."""
    source = remembered if share == 1.0 else {remembered: share, "sampler": 1.0 - share}
    config = {"model": SMALL, **change, "input": source, "input_evaluation": [], "train_batch_size": 20, "seed": 0}
    config |= {"min_iter_time_s": 0, "rollout_fragment_length": 20, "num_workers": 0}
    if name in ("DQN", "R2D2", "SimpleQ"):
        config |= {"learning_starts": 0, "timesteps_per_iteration": 60}
    trainer = get_trainer_class(name)(config, env="CartPole-v1")
    for _ in range(2):
        trainer.train()
    drawn = trainer.local_replay_buffer.replay()
    assert ("seq_lens" in drawn) == ("model" in change)
    assert not any(key.startswith("state_") for key in drawn) or "model" in change
    trainer.stop()


def test_stored_states_stay_where_they_were(remembered):
    (written, *_) = JsonReader(remembered).read_all_files()
    trainer = PGTrainer({**WRITES, "model": LSTM, "input": remembered, "input_evaluation": []}, env="CartPole-v1")
    (read, *_) = trainer.workers.local_worker().input_reader.read_all_files()
    starts = np.cumsum(written["seq_lens"]) - written["seq_lens"]
    assert "seq_lens" not in read
    np.testing.assert_array_equal(read["state_in_0"][starts], written["state_in_0"])
    trainer.stop()


def test_sums_of_rewards_are_refused_for_policies_with_memory(tmp_path):
    line = {"type": "SampleBatch", "obs": [[0.0] * 4] * 3, "new_obs": [[0.0] * 4] * 3, "actions": [0, 1, 0],
            "rewards": [3.0, 2.0, 1.0], "dones": [False, False, True], "n_steps": [3, 2, 1]}  # fmt: skip
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    config = {**READS, "model": LSTM, "input": str(tmp_path), "input_evaluation": []}
    trainer = DQNTrainer(config, env="CartPole-v1")
    with pytest.raises(DataError, match="sums of several steps, and a policy with memory"):
        trainer.train()
    trainer.stop()


def test_nested_actions_come_back(tmp_path):
    class Both(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gym.spaces.Tuple((gym.spaces.Discrete(3), gym.spaces.Box(-4, 4, (2,), np.float32)))

        def __init__(self, env_config=None):
            pass

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            return np.zeros(2, np.float32), 0.0, True, False, {}

    line = {"type": "SampleBatch", "obs": [[0, 0]] * 2, "actions": [[2, 4.0, -2.0], [0, 0.0, 1.0]]}
    (tmp_path / "data.json").write_text(json.dumps(line) + "\n")
    config = {"input": str(tmp_path), "input_evaluation": [], "model": SMALL, "num_workers": 0}
    batch = PPOTrainer(config, env=Both).workers.local_worker().sample()
    np.testing.assert_allclose(batch["actions"], [[2, 1.0, -0.5], [0, 0.0, 0.25]])
    assert batch["obs"].dtype == np.float32


def test_simulation_reports_episodes_of_the_environment_beside_the_data(written):
    config = {**READS, "input": written, "input_evaluation": ["simulation"], "rollout_fragment_length": 50}
    trainer = DQNTrainer(config, env="CartPole-v1")
    result = trainer.train()
    assert result["timesteps_total"] == 200
    assert result["episodes_this_iter"] > 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"input": "nowhere"}, "found no file"),
        ({"input": "no.such.Reader"}, "input=.no.such.Reader.: found no file there, and there is no module"),
        ({"input": "d4rl.hopper-v0"}, "D4RL"),
        ({"input": {"sampler": 0.5}}, "whose sum is 1"),
        ({"input": lambda _: 3}, "wanted an InputReader"),
        ({"input": []}, "no path"),
        ({"input": "dataset"}, "wanted format"),
        ({"output": "somewhere", "output_config": {"format": "csv"}}, "output_config.format: got 'csv'"),
        ({"output": "somewhere", "output_config": {"compression": "lz4"}}, "output_config: got 'compression'"),
        ({"output": lambda _: 3}, "wanted an OutputWriter"),
        ({"output": ["a"]}, "wanted a directory"),
        ({"evaluation_interval": 1, "evaluation_config": {"input": "data"}}, "wanted 'sampler'"),
    ],
    ids=[
        "path",
        "dotted",
        "d4rl",
        "shares",
        "reader",
        "empty",
        "dataset",
        "format",
        "output-key",
        "writer",
        "output",
        "evaluation",
    ],
)
def test_what_cannot_be_read_or_written_is_told_at_once(change, says):
    with pytest.raises(ConfigError, match=says):
        DQNTrainer({**READS, **change}, env="CartPole-v1")


@pytest.mark.parametrize(
    ("given", "source", "says"),
    [
        ({"shuffle_rows": 100}, "json", "got 'shuffle_rows', which nothing reads.*wanted n_step; JSON is read line by"),
        ({"shufle_rows": 100}, "parquet", "got 'shufle_rows'.*wanted n_step, shuffle_rows, batch_rows, schema$"),
        ({"batch_rows": 10, "rows": 1}, "both", "got 'rows', .*wanted n_step, shuffle_rows, batch_rows, schema$"),
        ({"path": "x"}, "json", "got 'path'.*wanted n_step$"),
        ({"shuffle_rows": 1, "format": "json"}, "dataset", "got 'shuffle_rows'.*wanted format, path, paths"),
    ],
)
def test_keys_of_input_config_that_nothing_reads_are_told(given, source, says, written, tables):
    sources = {"json": written, "parquet": tables, "both": {written: 0.5, tables: 0.5}}
    config = {**READS, "input": sources.get(source, source), "input_config": {"path": written, **given}}
    if source != "dataset" and "path" not in given:
        config["input_config"] = given
    with pytest.raises(ConfigError, match=says):
        DQNTrainer(config, env="CartPole-v1")


def test_readers_of_users_own_get_any_key_beside_those_of_files(written):
    class Own(InputReader):
        def __init__(self, ioctx):
            self.source = JsonReader(ioctx.input_config["where"])

        def next(self):
            return self.source.next()

    config = {**READS, "input": {Own: 1.0}, "input_config": {"where": written}, "input_evaluation": []}
    assert DQNTrainer(config, env="CartPole-v1").workers.local_worker().sample().count == 50


def test_a_checkpoint_writes_nowhere_its_program_did_not_say(written, tmp_path):
    one = PGTrainer({**WRITES, "output": str(tmp_path / "there")}, env="CartPole-v1")
    path = one.save(str(tmp_path / "checkpoint"))
    with pytest.raises(CheckpointError, match="output"):
        PGTrainer.from_checkpoint(path)
    again = PGTrainer.from_checkpoint(path, config={"output": str(tmp_path / "here")})
    again.train()
    assert len(list((tmp_path / "here").iterdir())) == 1


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_several_agents_write_and_read(kind, tmp_path):
    from rlframe.examples.env.multi_agent import MultiAgentCartPole

    several = {
        "env": MultiAgentCartPole, "env_config": {"num_agents": 2},
        "multiagent": {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent, *_, **__: "ab"[agent % 2]},
    }  # fmt: skip
    writer = PGTrainer({**WRITES, **several, "output": str(tmp_path), "output_config": {"format": kind}})
    writer.train()
    writer.stop()
    reader = DQNTrainer({**READS, **several, "input": str(tmp_path), "input_evaluation": []})
    batch = reader.workers.local_worker().sample()
    assert set(batch.policy_batches) == {"a", "b"}
    assert batch.env_steps() == 50 or kind == "parquet"  # whose batches are of whole episodes
    assert reader.train()["timesteps_total"] >= 200
    several["multiagent"] = {**several["multiagent"], "policies": {"a", "c"}}
    several["multiagent"]["policy_mapping_fn"] = lambda agent, *_, **__: "ac"[agent % 2]
    with pytest.raises(DataError, match=r"policies \['b'\]"):
        DQNTrainer({**READS, **several, "input": str(tmp_path)}).train()


def test_estimators_that_a_checkpoint_had_none_of_begin_behind_a_restore(written, tmp_path):
    config = {**READS, "input": written, "shuffle_buffer_size": 4}
    without = DQNTrainer({**config, "input_evaluation": ["is"]}, env="CartPole-v1")
    without.train()
    path = without.save(str(tmp_path))
    without.stop()
    trainer = DQNTrainer({**config, "input_evaluation": ["is", "wis"]}, env="CartPole-v1")
    trainer.restore(path)
    assert set(trainer.train()["off_policy_estimator"]) == {"is", "wis"}
    trainer.stop()
