"""What trainers, policies and workers show of themselves, and where their names are found."""

import numpy as np
import pytest

import rlframe
from rlframe.agents.registry import ALGORITHMS
from rlframe.agents.trainer import Trainer


@pytest.fixture(scope="module")
def trainer():
    made = rlframe.PGTrainer({"num_workers": 0, "train_batch_size": 20, "rollout_fragment_length": 20}, "CartPole-v1")
    made.train()
    yield made
    made.stop()


def test_a_trainer_says_algorithm_environment_framework_and_steps(trainer):
    shown = repr(trainer)
    assert shown.startswith("PG(env='CartPole-v1', framework='torch', num_workers=0, ")
    assert "'default_policy': 'PGTorchPolicy'" in shown
    assert shown.endswith("iteration=1, env_steps=20)")
    page = trainer._repr_html_()
    assert page.count("<tr>") == 6
    assert "default_policy: PGTorchPolicy" in page


def test_names_in_a_notebooks_table_are_no_markup(trainer, monkeypatch):
    monkeypatch.setattr(trainer, "_env_id", "<script>")
    assert "&lt;script&gt;" in trainer._repr_html_()
    assert "<script>" not in trainer._repr_html_()


def test_policies_and_workers_say_what_they_are(trainer):
    assert repr(trainer.get_policy()).startswith("PGTorchPolicy(framework='torch', observation_space=Box(")
    worker = "RolloutWorker(index=0, envs=1, policies=['default_policy'])"
    assert repr(trainer.workers) == f"WorkerSet(local={worker}, remote=[])"


def test_a_trainer_that_is_not_built_shows_itself_too():
    assert repr(Trainer.__new__(Trainer)) == "Trainer(env=None, iteration=0, env_steps=0)"


def test_a_policy_of_an_unknown_name_is_answered_with_the_names_there_are(trainer):
    for ask in (trainer.make_actor, lambda policy_id: trainer.compute_single_action(np.zeros(4), policy_id=policy_id)):
        with pytest.raises(KeyError, match=r"policy_id='main': wanted one of default_policy"):
            ask("main")
    for get_policy in (trainer.get_policy, trainer.workers.local_worker().get_policy):
        assert get_policy("main") is None  # as RLlib's programs ask whether there is one


def test_the_log_says_what_was_built_and_how_it_goes(caplog, tmp_path):
    small = {"num_workers": 0, "train_batch_size": 20, "rollout_fragment_length": 20, "log_level": "DEBUG"}
    made = rlframe.PGTrainer(small, "CartPole-v1")
    made.train()
    made.restore(made.save(str(tmp_path)))
    for wanted in (
        "built PG(env='CartPole-v1'", "default_policy: observations Box", "weights: {", "'train_batch_size': 20",
        "iteration 1: 20 env steps, mean return", "learner: {'default_policy'", "ParallelRollouts",
        "checkpoint of iteration 1 written", "goes on from iteration 1",
    ):  # fmt: skip
        assert wanted in caplog.text
    made.stop()
    caplog.clear()
    rlframe.PGTrainer({**small, "log_level": "WARN"}, "CartPole-v1").train()
    assert not caplog.text


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_trainer_is_found_in_the_package_and_says_what_it_is(algorithm):
    trainer_class, name = ALGORITHMS[algorithm]()[0], ALGORITHMS[algorithm].trainer.partition(":")[2]
    assert getattr(rlframe, name) is trainer_class
    assert name in rlframe.__all__
    assert "Keys beside the common ones" in trainer_class.__doc__


def test_results_tell_epsilon_by_the_env_steps_so_far():
    falls = {"initial_epsilon": 1.0, "final_epsilon": 0.0, "epsilon_timesteps": 200}
    config = {"num_workers": 0, "timesteps_per_iteration": 100, "min_iter_time_s": 0, "exploration_config": falls}
    config["learning_starts"] = 50
    trainer = rlframe.DQNTrainer(config, env="CartPole-v1")
    told = [trainer.train()["info"]["exploration"]["default_policy"]["cur_epsilon"] for _ in range(2)]
    trainer.stop()
    assert told == [pytest.approx(0.5, abs=0.05), pytest.approx(0.0, abs=0.05)]
