"""RLlib 0.8's policy optimizers, which trainers were made of before there were plans."""

import pytest

from rlframe.agents.pg import DEFAULT_CONFIG, PGTorchPolicy
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.trainer_template import build_trainer

PPO = {
    "num_workers": 0, "train_batch_size": 64, "rollout_fragment_length": 32, "sgd_minibatch_size": 32,
    "num_sgd_iter": 2, "seed": 3, "model": {"fcnet_hiddens": [8]},
}  # fmt: skip


def test_an_optimizer_with_minibatches_learns_as_ppo_without_the_penaltys_adaptation_does():
    from rlframe.optimizers import LocalMultiGPUOptimizer

    told = []

    def make_policy_optimizer(workers, config):
        return LocalMultiGPUOptimizer(
            workers,
            sgd_batch_size=config["sgd_minibatch_size"],
            num_sgd_iter=config["num_sgd_iter"],
            num_gpus=config["num_gpus"],
            sample_batch_size=config["rollout_fragment_length"],
            num_envs_per_worker=config["num_envs_per_worker"],
            train_batch_size=config["train_batch_size"],
            standardize_fields=["advantages"],
            shuffle_sequences=config["shuffle_sequences"],
        )

    def update_kl(trainer, fetches):
        told.append(fetches["kl"])
        trainer.workers.local_worker().for_policy(lambda policy: policy.update_kl(fetches["kl"]))

    old = PPOTrainer.with_updates(
        name="Old", make_policy_optimizer=make_policy_optimizer, after_optimizer_step=update_kl
    )
    trainer, built_in = old(PPO, env="CartPole-v1"), PPOTrainer(PPO, env="CartPole-v1")
    for _ in range(2):
        stats, expected = (
            each.train()["info"]["learner"]["default_policy"]["learner_stats"] for each in (trainer, built_in)
        )
        assert stats == pytest.approx(expected)
        assert told[-1] == stats["kl"]


def test_an_optimizer_of_whole_batches_learns_as_often_as_it_is_told():
    from rlframe.optimizers.sync_samples_optimizer import SyncSamplesOptimizer

    class Counting(PGTorchPolicy):
        learned = 0

        def learn_on_batch(self, samples):
            Counting.learned += 1
            return super().learn_on_batch(samples)

    old = build_trainer(
        name="OldPG",
        default_config=DEFAULT_CONFIG,
        default_policy=Counting,
        make_policy_optimizer=lambda workers, config: SyncSamplesOptimizer(
            workers, num_sgd_iter=3, train_batch_size=40
        ),
    )
    trainer = old({"num_workers": 0, "framework": "torch", "rollout_fragment_length": 20}, env="CartPole-v1")
    assert trainer.train()["info"]["num_steps_trained"] == 40
    assert Counting.learned == 3


def test_fetches_of_several_policies_are_told_by_policy():
    from rlframe.trainer.template import _fetches

    infos = {"a": {"learner_stats": {"kl": 1.0}, "td_error": 2}, "b": {"learner_stats": {"kl": 3.0}}}
    told = _fetches(infos)
    assert set(told) == {"a", "b"}
    assert (told["a"]["kl"], told["a"]["td_error"], told["b"]["kl"]) == (1.0, 2, 3.0)
    assert told["b"]["learner_stats"] == {"kl": 3.0}


def test_optimizers_that_are_no_plans_here_are_answered():
    from rlframe.optimizers import LocalMultiGPUOptimizer

    with pytest.raises(ImportError, match="Policy optimizers became execution plans"):
        from rlframe.optimizers import SyncReplayOptimizer  # noqa: F401
    with pytest.raises(TypeError, match="Corrected, which derives from a policy optimizer"):

        class Corrected(LocalMultiGPUOptimizer):
            pass

    with pytest.raises(TypeError, match="got 'sgd_size', wanted one of num_envs_per_worker"):
        LocalMultiGPUOptimizer(None, sgd_size=3)


def test_gradients_of_workers_are_applied_as_they_come():
    from rlframe.optimizers import AsyncGradientsOptimizer, async_gradients_optimizer

    assert async_gradients_optimizer.AsyncGradientsOptimizer is AsyncGradientsOptimizer
    old = build_trainer(
        name="OldA3C",
        default_config=DEFAULT_CONFIG,
        default_policy=PGTorchPolicy,
        make_policy_optimizer=lambda workers, config: AsyncGradientsOptimizer(workers, grads_per_step=5),
    )
    config = {"num_workers": 0, "framework": "torch", "rollout_fragment_length": 20, "timesteps_per_iteration": 40}
    assert old({**config, "min_iter_time_s": 0}, env="CartPole-v1").train()["info"]["num_steps_trained"] >= 40


def test_learner_infos_that_are_no_dicts_are_handed_on_and_the_penalty_is_that_of_the_policy_that_was_trained():
    from types import SimpleNamespace

    from rlframe.agents.ppo.ppo import update_kl
    from rlframe.trainer.template import _fetches

    assert _fetches({"loss": 0.5, "default_policy": {"learner_stats": None}}) == {
        "loss": 0.5, "default_policy": {"learner_stats": None},
    }  # fmt: skip
    told = []

    class Policy:
        def __init__(self, name):
            self.name = name

        def update_kl(self, kl):
            told.append((self.name, kl))

    policies = {name: Policy(name) for name in ("opponent", "default_policy")}
    trainer = SimpleNamespace(workers=SimpleNamespace(local_worker=lambda: SimpleNamespace(policy_map=policies)))
    update_kl(trainer, _fetches({"default_policy": {"learner_stats": {"kl": 0.5}}}))
    assert told == [("default_policy", 0.5)]
