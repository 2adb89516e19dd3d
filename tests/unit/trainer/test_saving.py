"""Runs that go on: seeds, checkpoints, what is refused of them."""

import copy
import logging
import os
import shutil

import numpy as np
import pytest

from rlframe.agents.dqn import SimpleQTrainer
from rlframe.agents.pg import PGTorchPolicy, PGTrainer
from rlframe.rllib1x.checkpoints import is_rllib_checkpoint
from rlframe.utils.errors import CheckpointError
from tests.helpers.envs import Bandit, Counting
from tests.helpers.frameworks import needs_tf
from tests.helpers.q_learners import assert_same_weights, make, weights_of


@pytest.mark.parametrize(
    "options", [{}, {"noisy": True, "num_atoms": 5, "n_step": 3}, {"prioritized_replay": False}], ids=str
)
def test_same_seed_gives_the_same_run(options):
    one, two = make(**options), make(**options)
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
    assert_same_weights(one, two)


def test_seed_zero_is_a_seed_and_another_seed_differs():
    zero, again, other = make(seed=0), make(seed=0), make(seed=1)
    for trainer in (zero, again, other):
        trainer.train()
    assert_same_weights(zero, again)
    assert any(not np.array_equal(a, weights_of(other)[n]) for n, a in weights_of(zero).items())


RAINBOW = {
    "noisy": True,
    "num_atoms": 7,
    "n_step": 3,
    "v_min": 0.0,
    "v_max": 50.0,
    "final_prioritized_replay_beta": 1.0,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        RAINBOW,
        {"prioritized_replay": False, "num_envs_per_worker": 3},
        {"observation_filter": "MeanStdFilter"},
        {"training_intensity": 24.0},
        {"exploration_config": {"type": "ParameterNoise"}},
        {"batch_mode": "complete_episodes"},
        pytest.param({"framework": "tf"}, marks=[needs_tf, pytest.mark.slow]),
        pytest.param({"framework": "tf2", **RAINBOW}, marks=[needs_tf, pytest.mark.slow]),
    ],
    ids=str,
)
def test_restored_trainer_goes_on_bit_for_bit(options, tmp_path):
    one = make(**options)
    for _ in range(2):
        one.train()
    path = one.save(str(tmp_path))
    assert path == str(tmp_path / "checkpoint_000002" / "checkpoint-2")
    two = make(**{**options, "seed": 99})
    two.restore(path)
    assert two.iteration == 2
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["timesteps_total"] == b["timesteps_total"]
        assert a["hist_stats"] == b["hist_stats"]
        assert a["episodes_total"] == b["episodes_total"]
        assert a["info"]["num_target_updates"] == b["info"]["num_target_updates"]
    assert_same_weights(one, two)


def test_restore_takes_old_spellings_of_a_checkpoint(tmp_path):
    one = make(Bandit)
    one.train()
    path = one.save(str(tmp_path))
    two = make(Bandit)
    two.restore(os.path.dirname(path))
    assert_same_weights(one, two)
    for spelling in ("checkpoint_1/checkpoint-1", "checkpoint_1"):  # as up to Ray 1.3
        three = make(Bandit, seed=9)
        three.restore(str(tmp_path / spelling))
        assert_same_weights(one, three)
    with pytest.raises(CheckpointError, match=r"no checkpoint at '.*/checkpoint_2/checkpoint-2'"):
        two.restore(str(tmp_path / "checkpoint_2/checkpoint-2"))


def test_programs_find_checkpoints_by_the_name_of_rllibs_file(tmp_path):
    one = make(Bandit)
    for _ in range(2):
        one.train()
        one.save(str(tmp_path))
    found = sorted(tmp_path.glob("checkpoint_*/checkpoint-*"))
    assert [file.name for file in found] == ["checkpoint-1", "checkpoint-2"]
    assert not is_rllib_checkpoint(found[-1].parent)
    two = make(Bandit, seed=9)
    two.restore(str(found[-1]))
    assert two.iteration == 2
    assert_same_weights(one, two)
    two.save_checkpoint(str(found[0].parent))  # over that of another iteration
    assert [file.name for file in tmp_path.glob("checkpoint_000001/checkpoint-*")] == ["checkpoint-2"]


def test_saving_returns_the_path_of_rllibs_file_whose_directory_is_the_checkpoint(tmp_path, monkeypatch):
    one = make(Bandit)
    one.train()
    monkeypatch.chdir(tmp_path)
    path = one.save("run")
    assert (path, type(path)) == ("run/checkpoint_000001/checkpoint-1", str)
    assert (os.path.isfile(path), int(path.split("-")[-1])) == (True, 1)
    assert os.path.dirname(one.save()) == os.path.join(one.logdir, "checkpoint_000001")
    for place in (path, os.path.dirname(path), tmp_path / path):
        two = make(Bandit, seed=9)
        two.restore(place)
        assert_same_weights(one, two)
        two = make(Bandit, seed=9)
        two.load_checkpoint(str(place))
        assert_same_weights(one, two)
        again = type(one).from_checkpoint(place, env=Bandit)
        assert_same_weights(one, again)
    with monkeypatch.context() as inside:
        inside.chdir(os.path.dirname(path))
        two.restore("checkpoint-1")
    for wrong in (str(tmp_path), "run"):
        with pytest.raises(CheckpointError, match="is no checkpoint, and stays"):
            one.delete_checkpoint(wrong)
    one.delete_checkpoint(path)
    assert os.listdir("run") == []


def test_a_copy_of_rllibs_file_alone_is_told_to_be_no_checkpoint(tmp_path):
    one = make(Bandit)
    path = one.save(str(tmp_path / "run"))
    for name in ("checkpoint-0", "best"):
        shutil.copy(path, tmp_path / name)
        with pytest.raises(CheckpointError, match=f"{name}' is the file checkpoint-N of a checkpoint without the rest"):
            one.restore(str(tmp_path / name))


def test_save_to_object_and_back():
    one, two = make(Bandit), make(Bandit, seed=9)
    one.train()
    two.restore_from_object(one.save_to_object())
    assert_same_weights(one, two)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        two.restore_from_object(b"something else")


def test_loading_a_checkpoint_needs_no_pickle(tmp_path, monkeypatch):
    import pickle

    one, two = make(Bandit), make(Bandit)
    one.train()
    path = one.save(str(tmp_path))

    def refuse(*args, **kwargs):
        raise AssertionError("a checkpoint was unpickled")

    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    two.restore(path)
    assert_same_weights(one, two)


def test_checkpoint_of_another_algorithm_is_refused_and_changes_nothing(tmp_path):
    other = SimpleQTrainer(
        {"seed": 1, "min_iter_time_s": 0, "timesteps_per_iteration": 50, "learning_starts": 30}, env=Bandit
    )
    other.train()
    path = other.save(str(tmp_path))
    trainer = make(Bandit)
    before = weights_of(trainer)
    with pytest.raises(CheckpointError, match=r"SimpleQ.*DQN"):
        trainer.restore(path)
    assert all(np.array_equal(array, weights_of(trainer)[name]) for name, array in before.items())
    trainer.train()


def test_checkpoint_of_another_space_is_refused(tmp_path):
    one = make(Bandit)
    one.train()
    with pytest.raises(CheckpointError, match="observation_space"):
        make("CartPole-v1").restore(one.save(str(tmp_path)))


def test_checkpoint_of_another_network_is_refused_and_changes_nothing(tmp_path):
    one = make(Bandit)
    one.train()
    path = one.save(str(tmp_path))
    trainer = make(Bandit, hiddens=[8])
    trainer.train()
    before, iteration = weights_of(trainer), trainer.iteration
    with pytest.raises(CheckpointError, match=r"do not fit.* configs differ in hiddens \(\[16\] there, \[8\] here\)$"):
        trainer.restore(path)
    assert trainer.iteration == iteration
    assert all(np.array_equal(array, weights_of(trainer)[name]) for name, array in before.items())
    trainer.train()


@pytest.mark.parametrize(
    "options", [{"replay_buffer_config": {"capacity": 99}}, {"prioritized_replay": False}], ids=lambda o: next(iter(o))
)
def test_checkpoint_of_another_replay_buffer_is_restored_without_it(options, tmp_path, caplog):
    one = make(Bandit)
    one.train()
    path = one.save(str(tmp_path))
    keeping, taking = make(Bandit, **options), make(Bandit, store_buffer_in_checkpoints=False, **options)
    keeping.train()
    held = keeping.local_replay_buffer.get_state()
    for trainer in (keeping, taking):
        trainer.restore(path)
        assert_same_weights(one, trainer)
    assert repr(keeping.local_replay_buffer.get_state()) == repr(held)
    assert len(taking.local_replay_buffer) == 0
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        keeping.compute_single_action(keeping.get_policy().observation_space.sample())
        taking.train()
        assert "replay buffer" not in caplog.text
        keeping.train()
        assert "the saved replay buffer is not taken over. The saved replay buffer" in caplog.text
    assert taking.iteration == keeping.iteration == 2


def test_restored_run_with_infos_and_whole_episodes_trains_on(tmp_path, caplog):
    class SeesInfos(PGTorchPolicy):
        train_columns = None

    config = {"num_workers": 0, "seed": 0, "batch_mode": "complete_episodes", "rollout_fragment_length": 15,
              "num_envs_per_worker": 2, "train_batch_size": 60, "log_sys_usage": False}  # fmt: skip
    trainer = PGTrainer.with_updates(name="SeesInfos", default_policy=SeesInfos)
    one, two = trainer(config, env="CartPole-v1"), trainer({**config, "seed": 3}, env="CartPole-v1")
    one.train()
    two.restore(one.save(str(tmp_path)))
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        two.train()
    assert "infos" not in caplog.text  # the repeated steps give them again
    one.train()
    assert_same_weights(one, two)


def test_restore_with_another_number_of_slots_says_that_episodes_begin_anew(tmp_path, caplog):
    one, two = make(Counting), make(Counting, num_envs_per_worker=3)
    one.train()
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        two.restore(one.save(str(tmp_path)))
        assert not caplog.records  # acting needs no episodes
        two.train()
    assert (
        "environments of 1 workers were saved, with 1 slots each; these are 1 with 3, and new episodes" in caplog.text
    )


def test_restore_that_fails_at_its_end_leaves_the_replay_buffer_as_it_was(tmp_path, monkeypatch):
    one, two = make(Bandit), make(Bandit, seed=9)
    for trainer in (one, two):
        trainer.train()
    path = one.save(str(tmp_path))
    held = two.local_replay_buffer.get_state()
    set_state = type(two.train_exec_impl).set_state
    left = [None]

    def fail_once(plan, *args, **kwargs):
        set_state(plan, *args, **kwargs)
        if left:
            left.pop()
            raise ValueError("no such operator")

    monkeypatch.setattr(type(two.train_exec_impl), "set_state", fail_once)
    with pytest.raises(CheckpointError, match="no such operator"):
        two.restore(path)
    assert repr(two.local_replay_buffer.get_state()) == repr(held)
    two.train()


def test_truncated_and_tampered_checkpoints_are_refused_and_change_nothing(tmp_path):
    one = make(Bandit)
    one.train()
    path = one.save(str(tmp_path))
    files = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    assert len(files) > 3
    trainer = make(Bandit, seed=9)
    before = weights_of(trainer)
    for file in files:
        good = file.read_bytes()
        for bad in (good[: len(good) // 2], good[:-1] + bytes([good[-1] ^ 1])):
            file.write_bytes(bad)
            with pytest.raises(CheckpointError):
                trainer.restore(path)
        file.write_bytes(good)
    assert all(np.array_equal(array, weights_of(trainer)[name]) for name, array in before.items())
    trainer.restore(path)
    assert_same_weights(one, trainer)


def test_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        make(Bandit).restore(str(tmp_path / "nothing"))


def test_target_network_and_optimizer_are_restored(tmp_path):
    one = make(target_network_update_freq=10_000)
    one.train()
    two = make(seed=8)
    two.restore(one.save(str(tmp_path)))
    online, target = (p.model.state_dict() for p in (two.get_policy(), two.get_policy().target_network))
    assert any(not np.array_equal(online[name], target[name]) for name in online)


class Counts(PGTrainer):
    """Keeps a number of its own in checkpoints, as RLlib's trainers did."""

    seen = 0

    def __getstate__(self):
        return {**super().__getstate__(), "mine": {"seen": self.seen}}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.seen = state["mine"]["seen"]


def test_a_trainers_own_state_is_in_its_checkpoints():
    config = {"num_workers": 0, "model": {"fcnet_hiddens": [4]}, "rollout_fragment_length": 8, "train_batch_size": 8}
    one, other, third = (Counts({**config, "seed": seed}, env="CartPole-v1") for seed in (1, 2, 3))
    one.seen = 5
    one.train()
    other.restore_from_object(one.save_to_object())
    third.__setstate__(one.__getstate__())
    for trainer in (other, third):
        assert (trainer.seen, trainer.iteration) == (5, 1)
        assert_same_weights(one, trainer)
    with pytest.raises(CheckpointError, match="a copy of a trainer"):
        copy.copy(one)


class Leveled(Counting):
    """Shows and pays its level, a task that holds from the next reset on."""

    task = (0, {"name": "plain"})

    def get_task(self):
        return self.task

    def set_task(self, task):
        self.task = task

    def _obs(self):
        self.level = self.level if self.steps else self.task[0]
        return np.array([self.level, self.steps], np.float32)

    def step(self, action):
        obs, reward, *others = super().step(action)
        return obs, reward + self.level, *others


def leveled(task):
    config = {"num_workers": 0, "rollout_fragment_length": 8, "train_batch_size": 8, "min_iter_time_s": 0, "seed": 5}
    return PGTrainer({**config, "env_task_fn": lambda result, env: task}, env=Leveled)


def test_tasks_of_environments_are_in_checkpoints(tmp_path):
    """A curriculum began anew behind each restore, until an iteration had ended."""
    saved, restored = (leveled((3, {"name": "hills"})) for _ in range(2))
    for _ in range(3):
        saved.train()
    restored.restore(saved.save(str(tmp_path)))
    assert restored.workers.local_worker().env.task == (3, {"name": "hills"})
    assert saved.train()["hist_stats"] == restored.train()["hist_stats"]
    assert_same_weights(saved, restored)


def test_a_task_that_no_checkpoint_can_hold_is_left_out_with_a_word(tmp_path, caplog):
    trainer = leveled((3, object()))
    trainer.train()
    trainer.save(str(tmp_path))
    assert "environments have tasks such as (3, <object" in caplog.text


def test_export_model_takes_rllibs_formats_by_tunes_names(tmp_path):
    from rlframe.tune.trial import ExportFormat

    trainer = PGTrainer({"num_workers": 0}, env=Bandit)
    paths = trainer.export_model([ExportFormat.MODEL, ExportFormat.CHECKPOINT], str(tmp_path))
    assert paths == {name: str(tmp_path / name) for name in ("model", "checkpoint")}
    assert (tmp_path / "model" / "model.pt").is_file()
    assert any((tmp_path / "checkpoint").iterdir())
