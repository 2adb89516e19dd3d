"""`rlframe.tune`: what programs for Ray 1.x write, and today's schedulers, on the same trainers."""

import json
import os
import time
from pathlib import Path

import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.utils.errors import ConfigError

pytestmark = pytest.mark.ray

CONFIG = {
    "env": "CartPole-v1",
    "seed": 1,
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 100,
    "learning_starts": 50,
    "hiddens": [16],
    "model": {"fcnet_hiddens": [16]},
    "log_sys_usage": False,
}


@pytest.mark.slow
def test_program_for_ray_1_runs_as_it_is(ray_runtime, tmp_path):
    from rlframe import tune
    from rlframe.tune.logger import DEFAULT_LOGGERS, Logger

    seen = []

    class Mine(Logger):
        def _init(self):
            seen.append(("opened", self.config["lr"]))

        def on_result(self, result):
            seen.append((result["training_iteration"], self.config["lr"]))

        def close(self):
            seen.append(("closed", self.config["lr"]))

    analysis = tune.run(
        "DQN",
        name="old",
        config={**CONFIG, "lr": tune.grid_search([1e-3, 1e-4]), "env_task_fn": tune.function(None)},
        stop={"training_iteration": 3},
        local_dir=str(tmp_path),
        loggers=[*DEFAULT_LOGGERS, Mine],
        queue_trials=True,
        checkpoint_freq=1,
        checkpoint_at_end=True,
        keep_checkpoints_num=2,
        checkpoint_score_attr="training_iteration",
        metric="training_iteration",
        mode="max",
        verbose=0,
    )
    assert sorted(analysis.dataframe()["config/lr"]) == [1e-4, 1e-3]
    assert analysis.best_config["lr"] in (1e-3, 1e-4)
    assert Path(analysis.best_logdir).is_relative_to(tmp_path)
    for lr in (1e-3, 1e-4):
        assert [what for what, its in seen if its == lr] == ["opened", 1, 2, 3, "closed"]
    trial = analysis.trials[0]
    frames = analysis.fetch_trial_dataframes()
    assert sorted(frames) == sorted(analysis.get_all_configs()) == sorted(each.logdir for each in analysis.trials)
    assert list(frames[trial.logdir]["training_iteration"]) == [1, 2, 3]
    assert frames[trial.trial_id] is frames.get(trial.trial_id) is frames[trial.logdir]
    assert [each in frames for each in (trial.trial_id, trial.logdir, "none")] == [True, True, False]
    assert frames.get("none") is None
    assert sorted(analysis.results_df["config.lr"]) == [1e-4, 1e-3]
    assert [metric for _, metric in analysis.get_trial_checkpoints_paths(trial)] == [2, 3]
    checkpoint = analysis.get_best_checkpoint(trial, metric="training_iteration", mode="max")
    assert checkpoint == os.path.join(checkpoint.path, "checkpoint-3")
    assert trial.checkpoint.value == analysis.get_last_checkpoint(trial).value == os.fspath(analysis.best_checkpoint)
    for given in (trial, trial.logdir):
        assert analysis.get_best_checkpoint(given) == checkpoint == analysis.get_last_checkpoint(given)
        steps = analysis.get_trial_checkpoints_paths(given, "info/num_steps_sampled")
        assert [value for _, value in steps] == list(frames[trial.logdir]["info/num_steps_sampled"])[1:]
    with pytest.raises(ValueError, match="no trial was there; wanted one of"):
        analysis.get_last_checkpoint(str(tmp_path))
    analysis.default_metric = "timesteps_total"
    totals = [value for _, value in analysis.get_trial_checkpoints_paths(trial)]
    assert totals == list(frames[trial.logdir]["timesteps_total"])[1:]
    assert analysis.runner_data()["_start_time"] == pytest.approx(analysis.stats()["start_time"], abs=600)
    assert analysis.set_filetype("csv")
    trainer = DQNTrainer(CONFIG)
    assert Path(checkpoint.path).name == "checkpoint_000003"
    trainer.restore(os.path.join(checkpoint))
    assert trainer.iteration == 3
    trainer.stop()

    (again,) = tune.run_experiments(
        {
            "restored": {
                "run": "DQN",
                "env": "CartPole-v1",
                "config": {key: value for key, value in CONFIG.items() if key != "env"},
                "stop": {"training_iteration": 4},
                "local_dir": str(tmp_path),
                "restore": checkpoint.path + "/checkpoint-3",
            }
        },
        verbose=0,
    )
    assert again.last_result["training_iteration"] == 4


@pytest.mark.slow
def test_asha_ends_trials_early(ray_runtime, tmp_path):
    from rlframe import tune
    from rlframe.tune.schedulers import ASHAScheduler

    tuner = tune.Tuner(
        "DQN",
        param_space={**CONFIG, "lr": tune.grid_search([1e-3, 1e-4])},
        tune_config=tune.TuneConfig(
            metric="timesteps_total", mode="max",
            scheduler=ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2),
        ),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )  # fmt: skip
    results = tuner.fit()
    assert not results.errors
    assert max(result.metrics["training_iteration"] for result in results) == 4


def test_extra_resources_are_one_bundle_where_a_node_has_them(ray_runtime):
    import ray

    from rlframe.tune.resources import Resources

    most = int(max(node["Resources"].get("CPU", 0) for node in ray.nodes()))
    assert Resources(cpu=0, extra_cpu=most).bundles == [{"CPU": most}]
    spread = Resources(cpu=1, extra_cpu=most + 1, extra_memory=4 * (most + 1))
    assert spread.bundles == [{"CPU": 1.0}, *[{"CPU": 1.0, "memory": 4.0}] * (most + 1)]


@pytest.mark.slow
def test_constructors_of_trainers_have_the_arguments_of_rllib(ray_runtime, tmp_path):
    from rlframe import tune

    class Named:  # a mixin, as in copies of RLlib's template
        def __init__(self, config=None, env=None, logger_creator=None):
            self.made_in = logger_creator(config).logdir
            super().__init__(config, env, logger_creator)

    class Mine(Named, PGTrainer):
        def step(self):
            return {**super().step(), "logdir": self.logdir, "made_in": self.made_in}

    class Deeper(Mine):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    config = {"env": "CartPole-v1", "train_batch_size": 20, "log_sys_usage": False}
    stop = {"training_iteration": 1}
    (trial,) = tune.run(Deeper, config=config, stop=stop, local_dir=str(tmp_path), verbose=0).trials
    assert Path(trial.last_result["logdir"]).is_relative_to(tmp_path)
    assert trial.last_result["logdir"] == trial.last_result["made_in"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Consider boosting PBT")  # a trainer is built anew for another config
def test_population_based_training_copies_and_perturbs(ray_runtime, tmp_path):
    from ray import tune  # Ray's own takes the class, too

    from rlframe.tune.schedulers import PopulationBasedTraining

    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        quantile_fraction=0.5,
        resample_probability=0.0,
        synch=True,
        hyperparam_mutations={"lr": [1e-2, 1e-3, 1e-4, 1e-5]},
    )
    tuner = tune.Tuner(
        DQNTrainer,
        # The copy's return is that of the trial with more episodes: what is shown is that a trainer can be copied.
        param_space={**CONFIG, "lr": tune.grid_search([1e-3, 1e-4])},
        tune_config=tune.TuneConfig(metric="episode_reward_mean", mode="max", scheduler=scheduler),
        run_config=tune.RunConfig(storage_path=str(tmp_path), stop={"training_iteration": 2}, verbose=0),
    )
    results = tuner.fit()
    assert not results.errors
    assert [result.metrics["training_iteration"] for result in results] == [2, 2]
    assert scheduler._num_perturbations >= 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Consider boosting PBT performance:UserWarning")
def test_a_population_that_fits_trains_side_by_side(ray_runtime, tmp_path):
    """Processes begin with a trial, and where it copies another; not for each iteration."""
    from rlframe import tune
    from rlframe.tune.schedulers import PopulationBasedTraining, create_scheduler

    starts = tmp_path / "starts"
    starts.mkdir()

    class Counting(tune.Trainable):
        def setup(self, config):
            (starts / f"{time.time_ns()}-{os.getpid()}").write_text("")
            self.score = 0.0

        def step(self):
            self.score += self.config["lr"]
            return {"score": self.score}

        def save_checkpoint(self, checkpoint_dir):
            return {"score": self.score}

        def load_checkpoint(self, checkpoint):
            self.score = checkpoint["score"]

    scheduler = create_scheduler(
        "pbt", time_attr="training_iteration", metric="score", mode="max", perturbation_interval=1,
        hyperparam_mutations={"lr": [1.0, 2.0]},
    )  # fmt: skip
    assert isinstance(scheduler, PopulationBasedTraining)
    analysis = tune.run(
        Counting, config={"lr": tune.grid_search([1.0, 2.0])}, stop={"training_iteration": 6}, scheduler=scheduler,
        local_dir=str(tmp_path), verbose=0,
    )  # fmt: skip
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [6, 6]
    assert len(list(starts.iterdir())) == 2 + scheduler._num_perturbations


@pytest.mark.slow
def test_constructors_of_todays_trainables_may_hand_on_the_storage_by_place(ray_runtime, tmp_path):
    from rlframe import tune

    class Todays(tune.Trainable):
        def __init__(self, config=None, storage=None):
            super().__init__(config, storage)

        def step(self):
            return {"logdir": self.logdir}

    (trial,) = tune.run(Todays, stop={"training_iteration": 1}, local_dir=str(tmp_path), verbose=0).trials
    assert Path(trial.last_result["logdir"]).is_relative_to(tmp_path)


@pytest.mark.slow
def test_a_trainable_returns_the_file_that_it_wrote_as_in_ray_1(ray_runtime, tmp_path):
    from rlframe import tune

    class Counting(tune.Trainable):
        def __init__(self, config, logger_creator):  # Ray 1.x handed these, and no storage
            super().__init__(config, logger_creator)

        def setup(self, config):
            self.count = 0

        def step(self):
            self.count += 1
            return {"count": self.count}

        def save_checkpoint(self, checkpoint_dir):
            path = os.path.join(checkpoint_dir, "model")
            Path(path).write_text(str(self.count))
            return path

        def load_checkpoint(self, path):
            self.count = int(Path(path).read_text())

    def run(iterations, restore=None):
        analysis = tune.run(
            Counting, stop={"training_iteration": iterations}, checkpoint_at_end=True, local_dir=str(tmp_path),
            verbose=0, restore=restore,
        )  # fmt: skip
        (trial,) = analysis.trials
        return trial.last_result["count"], analysis.get_last_checkpoint(trial)

    count, checkpoint = run(2)
    assert (count, Path(checkpoint).read_text()) == (2, "2")
    assert os.path.dirname(checkpoint).endswith("checkpoint_000002")
    logdir = os.path.dirname(os.path.dirname(checkpoint))
    assert tune.Analysis(logdir).get_trial_checkpoints_paths(logdir) == [(checkpoint, 2)]
    for place in (checkpoint, str(checkpoint), checkpoint.path):
        assert run(3, restore=place)[0] == 3  # one iteration more: counters go on, too


@pytest.mark.slow
def test_checkpoints_of_a_trainer_have_the_paths_of_ray_1(ray_runtime, tmp_path):
    from rlframe import tune

    class Mine(PGTrainer):
        def save_checkpoint(self, checkpoint_dir):
            path = super().save_checkpoint(checkpoint_dir)
            Path(os.path.dirname(path), "mine.txt").write_text("mine")
            return path

    told = []

    class Tells(tune.Callback):
        def on_checkpoint(self, checkpoint, **info):
            told.append(checkpoint.value)

    config = {"env": "CartPole-v1", "num_workers": 0, "train_batch_size": 20, "rollout_fragment_length": 20}
    analysis = tune.run(
        Mine, config=config, stop={"training_iteration": 2}, checkpoint_freq=1, local_dir=str(tmp_path), verbose=0,
        metric="timesteps_total", mode="min", callbacks=[Tells()],
    )  # fmt: skip
    (trial,) = analysis.trials
    paths = [os.path.join(trial.logdir, f"checkpoint_00000{n}", f"checkpoint-{n}") for n in (1, 2)]
    assert told == paths
    assert analysis.get_trial_checkpoints_paths(trial) == [(paths[0], 20), (paths[1], 40)]  # by the experiment's metric
    assert analysis.get_trial_checkpoints_paths(trial.logdir, "training_iteration") == [(paths[0], 1), (paths[1], 2)]
    assert (analysis.best_checkpoint, trial.checkpoint.value) == tuple(paths)
    assert analysis.get_last_checkpoint(trial.logdir) == analysis.get_last_checkpoint() == paths[1]
    assert tune.Analysis(trial.logdir).get_last_checkpoint(trial, mode="max") == paths[1]
    with pytest.raises(ConfigError, match="no trial was there"):
        analysis.get_best_checkpoint(str(tmp_path), "training_iteration", "max")
    for path in (analysis.best_checkpoint, paths[0], os.path.dirname(paths[0])):
        trainer = Mine(config)
        trainer.restore(path)
        assert trainer.iteration == 1
        trainer.stop()
    again = tune.run(
        Mine, config=config, stop={"training_iteration": 3}, restore=paths[1], local_dir=str(tmp_path), verbose=0
    )
    assert again.trials[0].last_result["timesteps_total"] == 60


@pytest.mark.slow
def test_data_frames_have_nested_parts_of_configs_as_in_ray_1(ray_runtime, tmp_path):
    from rlframe import tune

    def score(config):
        tune.report(score=config["model"]["size"])

    config = {"lr": 0.5, "model": {"size": tune.grid_search([3, 4])}}
    frame = tune.run(score, config=config, local_dir=str(tmp_path), verbose=0).dataframe(metric="score", mode="max")
    assert frame["config/model"].tolist() == [{"size": 3}, {"size": 4}]
    assert frame[["config/lr", "config/model/size", "score"]].to_numpy().tolist() == [[0.5, 3, 3], [0.5, 4, 4]]


@pytest.mark.slow
def test_a_wrong_config_of_a_search_fails_alone(ray_runtime, tmp_path):
    from ray.tune.error import TuneError

    from rlframe import tune

    config = {"env": "CartPole-v1", "num_workers": 0, "train_batch_size": 200, "num_sgd_iter": 1}
    search = {**config, "sgd_minibatch_size": tune.grid_search([400, 50])}
    with pytest.raises(TuneError, match="did not complete") as told:
        tune.run("PPO", config=search, stop={"training_iteration": 1}, local_dir=str(tmp_path), verbose=0)
    (bad,) = told.value.args[1]
    assert "sgd_minibatch_size=400 must be at most train_batch_size=200" in Path(bad.error_file).read_text()
    (frame,) = tune.Analysis(str(tmp_path / "PPO")).trial_dataframes.values()
    assert frame["training_iteration"].tolist() == [1]
    with pytest.raises(ConfigError, match="sgd_minibatch_size=400"):  # of one trial the program is told
        tune.run("PPO", config={**config, "sgd_minibatch_size": 400}, local_dir=str(tmp_path), verbose=0)


@pytest.mark.slow
def test_functions_of_ray_1_report_and_keep_checkpoints(ray_runtime, tmp_path, capsys):
    from rlframe import tune

    def with_reporter(config, reporter):
        assert os.path.isdir(reporter.logdir)
        assert (tune.get_trial_dir(), tune.get_trial_id()) == (reporter.logdir, reporter.trial_id)
        assert tune.is_session_enabled()
        for step in range(2):
            reporter(timesteps_total=step, episode_reward_mean=config["gain"] * step)

    def with_checkpoints(config, checkpoint_dir=None):
        if checkpoint_dir:
            tune.report(found=Path(checkpoint_dir, "step").read_text())
            return
        for step in range(2):
            with tune.checkpoint_dir(step=5 * step) as folder:
                Path(folder, "step").write_text(f"{config['gain']} {step}")
            tune.report(found="nothing")

    seen = []

    class Watch(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            trial.init_logdir()
            seen.append(os.path.isdir(trial.logdir))

    analysis = tune.run(
        with_reporter, "named", config={"gain": tune.grid_search([1.0, 2.0])}, local_dir=str(tmp_path),
        callbacks=[Watch()],
    )  # fmt: skip
    assert seen == [True] * 4
    assert len(capsys.readouterr().out.splitlines()) < 100
    best = analysis.get_best_trial("episode_reward_mean", mode="max")
    assert best.config["gain"] == 2.0
    assert Path(best.logdir).is_relative_to(tmp_path / "named")
    rows = [json.loads(line) for line in Path(best.logdir, "result.json").read_text().splitlines()]
    assert [row["episode_reward_mean"] for row in rows] == [0.0, 2.0]

    tune.register_trainable("checkpoints", with_checkpoints)
    settings = {"config": {"gain": 3}, "local_dir": str(tmp_path), "verbose": 0}
    (first,) = tune.run("checkpoints", keep_checkpoints_num=1, **settings).trials
    assert Path(first.checkpoint.path).name == "checkpoint_000005"
    (again,) = tune.run("checkpoints", restore=first.checkpoint.path, **settings).trials
    assert again.last_result["found"] == "3 1"


@pytest.mark.slow
def test_checkpoints_after_the_last_report_are_kept_without_a_result_of_their_own(ray_runtime, tmp_path):
    from rlframe import tune

    def steps(config):
        for step in range(2):
            tune.report(score=10 * step)
            with tune.checkpoint_dir(step=step) as folder:
                Path(folder, "step").write_text(str(step))
            if step == 0:
                first = Path(folder, "step")
        assert first.read_text() == "0"
        Path("relative").write_text("")
        Path(tune.get_trial_dir(), "by_name").write_text("")
        return {"score": 5} if config["returns"] else None

    for returns, rows in ((False, [0, 10]), (True, [0, 10, 5])):
        analysis = tune.run(steps, str(returns), config={"returns": returns}, local_dir=str(tmp_path), verbose=0)
        (trial,) = analysis.trials
        assert list(analysis.trial_dataframes[trial.logdir]["score"]) == rows
        found = analysis.get_trial_checkpoints_paths(trial, "score")
        assert [(Path(path, "step").read_text(), score) for path, score in found] == [("0", 10), ("1", rows[-1])]
        assert Path(trial.checkpoint.value, "step").read_text() == "1"
        assert {"relative", "by_name"} <= set(os.listdir(trial.logdir))


@pytest.mark.slow
def test_files_and_exports_of_a_trainer_lie_in_the_directory_of_its_trial(ray_runtime, tmp_path):
    from rlframe import tune
    from rlframe.agents.callbacks import DefaultCallbacks

    class Writes(DefaultCallbacks):
        def on_train_result(self, *, trainer, result, **kwargs):
            Path(trainer.logdir, "by_name").write_text("")
            Path("relative").write_text("")

    config = {**CONFIG, "callbacks": Writes, "output": "logdir"}
    formats = ["model", "checkpoint"]
    settings = {"stop": {"training_iteration": 1}, "local_dir": str(tmp_path), "verbose": 0}
    (trial,) = tune.run("DQN", "written", config=config, export_formats=formats, **settings).trials
    assert {"by_name", "relative", *formats} <= set(os.listdir(trial.logdir))
    assert list(Path(trial.logdir).glob("output-*.json"))


@pytest.mark.slow
def test_results_of_every_experiment_are_kept_and_failed_trials_begin_anew(ray_runtime, tmp_path):
    from rlframe import tune

    flag = tmp_path / "mended"

    def fails_once(config):
        tune.report(score=1)
        if config["fails"] and not flag.exists():
            raise RuntimeError("not yet")
        tune.report(score=2)

    specs = {
        name: {"run": fails_once, "config": {"fails": False}, "local_dir": str(tmp_path)}
        for name in ("first", "second")
    }
    trials = tune.run_experiments(specs, verbose=0)
    for trial, name in zip(trials, specs, strict=True):
        assert Path(trial.logdir).parent == tmp_path / name
        rows = [json.loads(line) for line in Path(trial.logdir, "result.json").read_text().splitlines()]
        assert [row["score"] for row in rows] == [1, 2]
        assert {"params.json", "params.pkl", "progress.csv"} <= set(os.listdir(trial.logdir))

    settings = {"name": "again", "local_dir": str(tmp_path), "config": {"fails": True}, "verbose": 0}
    (failed,) = tune.run(fails_once, raise_on_failed_trial=False, **settings).trials
    assert failed.status == "ERROR"
    flag.touch()
    (trial,) = tune.run(fails_once, resume="ERRORED_ONLY", **settings).trials
    assert (trial.status, trial.last_result["score"]) == ("TERMINATED", 2)
    (trial,) = tune.run(fails_once, resume="LOCAL", **settings).trials
    assert (trial.status, trial.last_result["score"]) == ("TERMINATED", 2)
