"""Trainers in the form that programs before `setup` had: `_default_config`, `_init`; loggers named by their path."""

import json
import os
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from rlframe import tune
from rlframe.agents.callbacks import DefaultCallbacks, MultiCallbacks
from rlframe.agents.pg import PGTorchPolicy, PGTrainer
from rlframe.agents.trainer import Trainer, with_common_config
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep
from rlframe.tune.logger import Logger
from rlframe.utils.annotations import override
from rlframe.utils.errors import CheckpointError, ConfigError


class Rounds(Trainer):
    _name = "Rounds"
    _default_config = with_common_config({"rounds": 3})

    @override(Trainer)
    def _init(self, config, env_creator):
        self.env = env_creator(config["env_config"])

    @override(Trainer)
    def step(self):
        for _ in range(self.config["rounds"]):
            self.env.reset()
        return {"episode_reward_mean": 1.0, "timesteps_this_iter": self.config["rounds"]}


def test_a_trainer_builds_its_own_parts():
    trainer = Rounds(config={"rounds": 4}, env="CartPole-v1")
    assert trainer.train()["timesteps_this_iter"] == 4
    assert trainer.workers is None
    trainer.stop()


class CountedRounds(Rounds):
    def _init(self, config, env_creator):
        self.rounds = 0

    def step(self):
        self.rounds += 1
        return {"episode_reward_mean": float(self.rounds), "timesteps_this_iter": 2}

    def __getstate__(self):
        return {"rounds": self.rounds}

    def __setstate__(self, state):
        self.rounds = state["rounds"]


@pytest.mark.parametrize("trainer_class", [Rounds, CountedRounds])
def test_a_trainer_without_workers_is_saved_and_restored(trainer_class, tmp_path):
    trainer = trainer_class(env="CartPole-v1")
    trainer.train()
    path = trainer.save(str(tmp_path))
    trainer.train()
    trainer.restore(path)
    assert (trainer.iteration, getattr(trainer, "rounds", 1)) == (1, 1)
    other = trainer_class(env="CartPole-v1")
    other.restore(path)
    assert other.train()["training_iteration"] == 2
    for each in (trainer, other):
        each.stop()


def pairs_of_batches(workers, config):
    rollouts = ParallelRollouts(workers, mode="bulk_sync").combine(ConcatBatches(config["rows"]))
    return StandardMetricsReporting(rollouts.for_each(TrainOneStep(workers)), workers, config)


class OfItsParts(Trainer):
    """Builds workers and plan with a config of its own, and does an iteration's parts itself."""

    _name = "OfItsParts"
    _default_config = with_common_config({})

    def _init(self, config, env_creator):
        self._policy_class = PGTorchPolicy
        self.config = {**config, "rows": 30}
        self.workers = self._make_workers(
            env_creator=env_creator, validate_env=None, policy_class=PGTorchPolicy, config=config, num_workers=0
        )
        self.train_exec_impl = pairs_of_batches(self.workers, self.config)

    def step(self):
        result = next(self.train_exec_impl)
        if self.iteration == 1:
            result.update(self._evaluate())
        return result

    def __getstate__(self):
        return {**super().__getstate__(), "mine": self.train_exec_impl.shared_metrics.get().save()}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.train_exec_impl.shared_metrics.get().restore(state["mine"])


def test_a_trainer_with_a_plan_of_its_own_init_evaluates_and_goes_on_with_that_plan(tmp_path):
    config = {"rollout_fragment_length": 10, "evaluation_interval": 2, "evaluation_num_episodes": 1}
    trainer = OfItsParts(config=config, env="CartPole-v1")
    assert trainer.evaluation_workers.local_worker() is not None
    plan, first = trainer.train_exec_impl, trainer.train()
    assert first["experiment_id"] == trainer.experiment_id
    assert first["timesteps_total"] == 30
    path = trainer.save(str(tmp_path))
    assert trainer.train()["evaluation"]["episodes_this_iter"] == 1
    trainer.restore(path)
    assert trainer.train_exec_impl is plan
    assert trainer.train()["timesteps_total"] == 60
    trainer.stop()


class OfItsWorker(PGTrainer):
    """Its state is all of its own: nothing of what RLlib's base class returned is in it, nor was there."""

    def __getstate__(self):
        return {"worker": self.workers.local_worker().save()}

    def __setstate__(self, state):
        self.workers.local_worker().restore(state["worker"])


def test_it_counts_on_where_its_own_state_has_no_counters(tmp_path):
    config = {"num_workers": 0, "train_batch_size": 20, "rollout_fragment_length": 20, "min_iter_time_s": 0}
    one, other = (OfItsWorker(config, env="CartPole-v1") for _ in range(2))
    one.train()
    result = one.train()
    other.restore(one.save(str(tmp_path)))
    assert other.iteration == 2
    again = other.train()
    assert again["training_iteration"] == 3
    assert again["time_total_s"] > result["time_total_s"]
    for each in (one, other):
        each.stop()


def test_its_own_keys_have_defaults_and_others_are_refused():
    assert Rounds.get_default_config()["rounds"] == 3
    with pytest.raises(ConfigError, match="round"):
        Rounds(config={"round": 4}, env="CartPole-v1")


def test_defaults_are_an_attribute_of_the_class():
    config = deepcopy(PGTrainer._default_config)
    assert config == PGTrainer.get_default_config()
    config["lr"] = 1.0
    assert PGTrainer._default_config["lr"] != 1.0


class Weights(DefaultCallbacks):
    def on_trainer_init(self, trainer, **kwargs):
        policy = trainer.workers.local_worker().get_policy()
        policy.set_weights({name: np.zeros_like(weights) for name, weights in policy.get_weights().items()})


def test_callbacks_see_a_trainer_that_is_built():
    trainer = PGTrainer({"num_workers": 0, "callbacks": MultiCallbacks([DefaultCallbacks, Weights])}, env="CartPole-v1")
    assert not any(weights.any() for weights in trainer.get_policy().get_weights().values())
    trainer.stop()


@pytest.mark.parametrize("beside", [False, True])
def test_callbacks_see_an_evaluation_begin_and_end(beside):
    seen = []

    class Evaluations(DefaultCallbacks):
        def on_evaluate_start(self, *, trainer, **kwargs):
            seen.append(trainer.iteration)

        def on_evaluate_end(self, *, trainer, evaluation_metrics, **kwargs):
            seen.append(evaluation_metrics["evaluation"]["episodes_this_iter"])
            evaluation_metrics["evaluation"]["noted"] = 1.0

    config = {"num_workers": 0, "train_batch_size": 20, "rollout_fragment_length": 20, "min_iter_time_s": 0}
    evaluating = {"evaluation_interval": 1, "evaluation_num_episodes": 2, "callbacks": Evaluations}
    trainer = PGTrainer({**config, **evaluating, "evaluation_parallel_to_training": beside}, env="CartPole-v1")
    assert trainer.train()["evaluation"]["noted"] == 1.0
    trainer.evaluate()
    assert seen == [0, 2, 1, 2]
    trainer.stop()


def test_callbacks_of_no_base_have_only_the_hooks_that_they_define():
    class Ends:
        ended = 0

        def on_episode_end(self, **kwargs):
            Ends.ended += 1

    config = {"num_workers": 0, "train_batch_size": 200, "min_iter_time_s": 0, "evaluation_num_episodes": 1}
    trainer = PGTrainer({**config, "callbacks": Ends}, env="CartPole-v1")
    trainer.train()
    trainer.evaluate()
    assert Ends.ended > 1
    trainer.stop()


def test_a_logger_is_named_by_its_path(tmp_path):
    config = {"num_workers": 0, "train_batch_size": 20, "rollout_fragment_length": 20}
    logger = {"type": "ray.tune.logger.NoopLogger", "logdir": str(tmp_path)}
    trainer = PGTrainer({**config, "logger_config": logger}, env="CartPole-v1")
    trainer.train()
    assert type(trainer._logger).__name__ == "NoopLogger"
    trainer.stop()
    wrong = PGTrainer({**config, "logger_config": {"type": "ray.tune.logger.Nothing"}}, env="CartPole-v1")
    with pytest.raises(ConfigError, match="cannot import"):
        wrong.train()
    wrong.stop()


def test_a_logger_has_the_options_and_the_directory_that_stand_beside_its_type(tmp_path):
    class Prints(Logger):
        def on_result(self, result):
            with open(os.path.join(self.logdir, "printed"), "a") as file:
                file.write(self.config["prefix"])

    logger = {"type": Prints, "prefix": "ABC", "logdir": str(tmp_path / "exactly")}
    trainer = PGTrainer({"train_batch_size": 20, "rollout_fragment_length": 20, "logger_config": logger}, "CartPole-v1")
    trainer.train()
    assert trainer.logdir == logger["logdir"]
    assert (tmp_path / "exactly" / "printed").read_text() == "ABC"
    trainer.stop()


class Sampling(Trainer):
    _name = "Sampling"
    _default_config = PGTrainer._default_config

    def _init(self, config, env_creator):
        self.workers = self._make_workers(env_creator, PGTorchPolicy, config, num_workers=config["num_workers"])

    def _train(self):
        batch = self.workers.local_worker().sample()
        learned = self.workers.local_worker().learn_on_batch(batch)
        return {**self.collect_metrics(), "timesteps_this_iter": batch.count, "info": {"learner": learned}}


def test_a_trainer_makes_workers_and_trains_by_the_names_of_rllib_08(tmp_path):
    trainer = Sampling(config={"num_workers": 0, "rollout_fragment_length": 20, "seed": 3}, env="CartPole-v1")
    result = trainer.train()
    assert (result["timesteps_this_iter"], result["timesteps_total"]) == (20, 20)
    weights = trainer.get_policy().get_weights()
    path = trainer.save(str(tmp_path))
    trainer.train()
    trainer.restore(path)
    assert all((trainer.get_policy().get_weights()[name] == kept).all() for name, kept in weights.items())
    assert trainer.iteration == 1
    with pytest.raises(TypeError, match="num_workerz"):
        trainer._make_workers(num_workerz=1)
    trainer.stop()


def test_an_overridden_init_of_a_built_in_algorithm_goes_on_with_its_own():
    class More(PGTrainer):
        def _init(self, config, env_creator):
            config["lr"] = 0.5
            super()._init(config, env_creator)
            self.rounds = 0

        def _make_workers(self, *, env_creator, validate_env, policy_class, config, num_workers):
            self.made = (policy_class, num_workers)
            return super()._make_workers(
                env_creator=env_creator,
                validate_env=validate_env,
                policy_class=policy_class,
                config=config,
                num_workers=num_workers,
            )

        def step(self):
            self.rounds += 1
            return super().step()

    trainer = More(config={"num_workers": 0, "rollout_fragment_length": 20, "train_batch_size": 20}, env="CartPole-v1")
    assert trainer.train()["timesteps_total"] == 20
    assert (trainer.rounds, trainer.get_policy().config["lr"]) == (1, 0.5)
    assert trainer.made == (PGTorchPolicy, 0)
    trainer.stop()


def test_a_trainer_names_the_class_of_its_policy_as_in_rllib():
    assert PGTrainer._policy_class is PGTrainer._policy is PGTorchPolicy
    own = type("Own", (PGTorchPolicy,), {})
    trainer = PGTrainer.with_updates(name="Mine", default_policy=own)({"num_workers": 0}, env="CartPole-v1")
    assert trainer._policy_class is type(trainer)._policy_class is own
    trainer.stop()


def test_a_direct_subclass_of_trainer_names_the_class_of_its_policy():
    columns = set()

    class Own(PGTorchPolicy):
        def loss(self, model, dist_class, train_batch):
            columns.update(train_batch)
            return super().loss(model, dist_class, train_batch)

    class Named(Trainer):
        _policy_class = Own

    trainer = Named({"num_workers": 0, "rollout_fragment_length": 20, "train_batch_size": 20}, env="CartPole-v1")
    assert type(trainer.get_policy()) is Own
    assert trainer.train()["timesteps_total"] == 20
    assert columns >= {"action_prob", "t"}  # all of them, as for any loss of a program's own
    trainer.stop()


def test_an_overridden_train_of_a_built_in_algorithm_is_called():
    class Told(PGTrainer):
        def _train(self):
            return {**super()._train(), "told": True}

    trainer = Told(config={"num_workers": 0, "train_batch_size": 20}, env="CartPole-v1")
    assert trainer.train()["told"]
    trainer.stop()


def test_parts_of_its_own_without_a_step_are_an_error():
    class Idle(Sampling):
        _train = Trainer._train

    trainer = Idle(config={"num_workers": 0}, env="CartPole-v1")
    with pytest.raises(ConfigError, match="has no step"):
        trainer.train()
    trainer.stop()


def test_methods_may_have_the_names_of_ray_08(tmp_path):
    calls = []

    class Old(PGTrainer):
        def _setup(self, config):
            super()._setup(config)
            self.trained = 0

        def _train(self):
            self.trained += 1
            return super()._train()

        def _save(self, checkpoint_dir):
            path = super()._save(checkpoint_dir)
            Path(checkpoint_dir, "trained.txt").write_text(str(self.trained))
            return path

        def _restore(self, checkpoint):
            super()._restore(checkpoint)
            self.trained = int(Path(os.path.dirname(checkpoint), "trained.txt").read_text())

        def _log_result(self, result):
            calls.append("log")
            super()._log_result(result)

        def _stop(self):
            calls.append("stop")
            super()._stop()

    config = {"train_batch_size": 20, "rollout_fragment_length": 20, "num_workers": 0, "model": {"fcnet_hiddens": [4]}}
    one, other = Old(config, env="CartPole-v1"), Old(config, env="CartPole-v1")
    one.train()
    other.restore(one.save(str(tmp_path)))
    assert (other.trained, other.iteration) == (1, 1)
    one.stop()
    other.stop()
    assert calls == ["log", "stop", "stop"]


def test_restore_of_ray_08_gets_the_path_that_save_returned(tmp_path):
    class Counts(Trainer):
        _default_config = with_common_config({})

        def _init(self, config, env_creator):
            self.count = 0

        def _train(self):
            self.count += 1
            return {"episode_reward_mean": self.count}

        def _save(self, checkpoint_dir):
            path = Path(checkpoint_dir, "count")
            path.write_text(str(self.count))
            return str(path)

        def _restore(self, path):
            self.count = int(Path(path).read_text())

    trainer = Counts(env="CartPole-v1")
    trainer.train()
    path = trainer.save(str(tmp_path))
    trainer.train()
    trainer.restore(path)
    assert trainer.count == 1


def test_restoring_gets_the_path_of_the_file_that_saving_returned(tmp_path):
    class Counts(Trainer):
        _default_config = with_common_config({})

        def _init(self, config, env_creator):
            self.count = 0

        def step(self):
            self.count += 1
            return {"episode_reward_mean": self.count}

        def save_checkpoint(self, checkpoint_dir):
            path = Path(checkpoint_dir, f"checkpoint-{self.iteration}")
            path.write_text(str(self.count))
            return str(path)

        def load_checkpoint(self, path):
            self.count = int(Path(path).read_text())

    class Tells(Counts):
        def save_checkpoint(self, checkpoint_dir):
            path = super().save_checkpoint(checkpoint_dir)
            Path(path).write_text(Path(path).read_text() + "0")
            return path

    trainer = Tells(env="CartPole-v1")
    trainer.train()
    path = trainer.save(str(tmp_path))
    trainer.restore(path)
    assert trainer.count == 10
    trainer.restore(trainer.save_checkpoint(os.path.dirname(path)))
    assert trainer.count == 100


SMALL_PG = {"train_batch_size": 20, "rollout_fragment_length": 20, "num_workers": 0, "model": {"fcnet_hiddens": [4]}}


@pytest.mark.parametrize(
    ("returns", "saved"),
    [
        (lambda above, directory: above, "checkpoint-1"),
        (lambda above, directory: os.path.join(directory, "mine.txt"), "mine.txt"),
        (lambda above, directory: Path(directory, "deep", "mine.txt"), "deep/mine.txt"),
        (lambda above, directory: os.path.join(directory, ".mine"), ".mine"),
        (lambda above, directory: os.path.join(directory, "mine"), "mine"),  # what files' names begin with
        (lambda above, directory: directory, ""),
        (lambda above, directory: os.path.join(directory, "deep"), "deep/"),
        (lambda above, directory: None, ""),
    ],
    ids=["file of super()", "file", "file below", "hidden", "prefix", "directory", "directory below", "nothing"],
)
def test_saving_returns_what_a_programs_own_method_did_and_restoring_gets_that(returns, saved, tmp_path):
    given = []

    class Mine(PGTrainer):
        def save_checkpoint(self, checkpoint_dir):
            above = super().save_checkpoint(checkpoint_dir)
            assert above == os.path.join(checkpoint_dir, "checkpoint-1")
            os.mkdir(os.path.join(checkpoint_dir, "deep"))
            for name in ("mine.txt", "deep/mine.txt"):
                Path(checkpoint_dir, name).write_text("mine")
            return returns(above, checkpoint_dir)

        def load_checkpoint(self, checkpoint_path):
            given.append(checkpoint_path)
            super().load_checkpoint(checkpoint_path)

    trainer = Mine(SMALL_PG, env="CartPole-v1")
    trainer.train()
    path = trainer.save(str(tmp_path))
    directory = str(tmp_path / "checkpoint_000001")
    assert path == os.path.join(directory, saved)
    for place in (path, directory):
        trainer.train()
        trainer.restore(place)
        assert trainer.iteration == 1
        Mine.from_checkpoint(place).stop()
    assert given == [path] * 4
    trainer.delete_checkpoint(path)
    assert os.listdir(tmp_path) == []
    trainer.stop()


def test_methods_of_a_mixin_get_the_path_of_the_file_as_well(tmp_path):
    given = []

    class Keeps:
        def save_checkpoint(self, checkpoint_dir):
            super().save_checkpoint(checkpoint_dir)
            Path(checkpoint_dir, "mine.txt").write_text("mine")
            return os.path.join(checkpoint_dir, "mine.txt")

        def load_checkpoint(self, checkpoint_path):
            given.append(checkpoint_path)
            super().load_checkpoint(checkpoint_path)

    class Mine(Keeps, PGTrainer):
        pass

    class Below(Mine):
        pass

    trainer = Below(SMALL_PG, env="CartPole-v1")
    path = trainer.save(str(tmp_path))
    assert path == str(tmp_path / "checkpoint_000000" / "mine.txt")
    trainer.restore(os.path.dirname(path))
    assert given == [path]
    trainer.stop()


def test_a_trainer_in_the_checkpoint_of_another_program_has_its_own_path(tmp_path):
    class Holds(tune.Trainable):
        def setup(self, config):
            self.held = PGTrainer(SMALL_PG, env="CartPole-v1")

        def step(self):
            return self.held.train()

        def save_checkpoint(self, checkpoint_dir):
            return self.held.save(checkpoint_dir)

        def load_checkpoint(self, path):
            self.held.restore(path)

    one, other = Holds(), Holds()
    one.train()
    path = one.save(str(tmp_path))
    assert path == str(tmp_path / "checkpoint_000001" / "checkpoint_000001" / "checkpoint-1")
    for place in (path, str(tmp_path / "checkpoint_000001")):
        other.restore(place)
        assert (other.iteration, other.held.iteration) == (1, 1)
        other.train()
    for each in (one, other):
        each.held.stop()
        each.stop()


def test_a_note_that_leads_out_of_a_checkpoint_is_refused(tmp_path):
    class Mine(PGTrainer):
        def load_checkpoint(self, checkpoint_path):
            raise AssertionError(f"opened {checkpoint_path}")

    trainer = Mine(SMALL_PG, env="CartPole-v1")
    path = trainer.save(str(tmp_path))
    for note, said in (
        ({"file": "../../mine", "counters": {}}, "wanted a path in the checkpoint"),
        ({"file": "x"}, "counters"),
        ([], "TypeError"),
    ):
        Path(os.path.dirname(path), "saved_by_program.json").write_text(json.dumps(note))
        with pytest.raises(CheckpointError, match=rf"saved_by_program.json' is damaged: .*{said}"):
            trainer.restore(os.path.dirname(path))
    trainer.stop()


def test_saving_by_hand_returns_what_restoring_takes(tmp_path):
    config = {"train_batch_size": 20, "rollout_fragment_length": 20, "num_workers": 0, "model": {"fcnet_hiddens": [4]}}
    trainer = PGTrainer(config, env="CartPole-v1")
    trainer.train()
    path = trainer.save_checkpoint(str(tmp_path / "mine"))
    trainer.train()
    trainer.load_checkpoint(path)
    assert trainer.iteration == 1
    trainer.stop()


def test_a_checkpoint_that_nothing_would_write_is_told(tmp_path):
    class Kept(PGTrainer):
        def save_checkpoint(self, checkpoint_dir):
            assert Path(checkpoint_dir).is_dir()
            return {"mine": 1}

    config = {"train_batch_size": 20, "rollout_fragment_length": 20, "num_workers": 0, "model": {"fcnet_hiddens": [4]}}
    trainer = Kept(config, env="CartPole-v1")
    with pytest.raises(CheckpointError, match="returned a dict, wanted files in the directory"):
        trainer.save(str(tmp_path))
    trainer.stop()
