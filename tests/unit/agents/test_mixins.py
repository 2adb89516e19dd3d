"""Mixins in `with_updates`: RLlib's programs name all of a policy's, those that it has and their own."""

import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.trainer_template import build_trainer
from rlframe.utils import add_mixins
from tests.helpers.frameworks import FRAMEWORKS, needs_tf

CONFIG = {"num_workers": 0, "train_batch_size": 40, "rollout_fragment_length": 40, "sgd_minibatch_size": 20,
          "num_sgd_iter": 2, "min_iter_time_s": 0, "seed": 1, "model": {"fcnet_hiddens": [4]},
          "kl_coeff": 0.7, "lr_schedule": [[0, 1e-3], [80, 1e-4]],
          "entropy_coeff_schedule": [[0, 0.5], [80, 0.25]]}  # fmt: skip


def names_of_rllib(framework):
    if framework == "torch":
        from rlframe.agents.ppo import ppo_torch_policy as module
        from rlframe.policy import torch_policy as schedules

        return module.PPOTorchPolicy, module, schedules
    from rlframe.agents.ppo import ppo_tf_policy as module
    from rlframe.policy import tf_policy as schedules

    return module.PPOTFPolicy, module, schedules


@pytest.mark.parametrize(
    ("framework", "form"),
    [
        ("torch", "together"),
        ("torch", "one by one"),
        pytest.param("tf", "together", marks=[needs_tf, pytest.mark.slow]),
        pytest.param("tf", "one by one", marks=needs_tf),
    ],
)
def test_a_policy_keeps_what_its_mixins_did_beside_ones_own(framework, form):
    policy_class, ppo, schedules = names_of_rllib(framework)

    class Counting:
        def __init__(self):
            self.counted = 0

        def learn_on_batch(self, samples):
            self.counted += 1
            return super().learn_on_batch(samples)

    def setup(policy, obs_space, action_space, config):
        if form == "together":
            ppo.setup_mixins(policy, obs_space, action_space, config)
        else:
            ppo.KLCoeffMixin.__init__(policy, config)
            schedules.EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
            schedules.LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])
        Counting.__init__(policy)

    mixins = [
        schedules.LearningRateSchedule,
        schedules.EntropyCoeffSchedule,
        ppo.KLCoeffMixin,
        ppo.ValueNetworkMixin,
        Counting,
    ]
    derived = policy_class.with_updates(name="Counted", before_loss_init=setup, mixins=mixins)
    trainer = PPOTrainer.with_updates(name="Mine", default_policy=derived)({**CONFIG, "framework": framework},
                                                                           env="CartPole-v1")  # fmt: skip
    plain = PPOTrainer({**CONFIG, "framework": framework}, env="CartPole-v1")
    for seen in range(3):
        mine, other = (each.train()["info"]["learner"]["default_policy"]["learner_stats"] for each in (trainer, plain))
        assert (mine["cur_lr"], mine["cur_kl_coeff"]) == (other["cur_lr"], other["cur_kl_coeff"])
        assert mine["entropy_coeff"] == other["entropy_coeff"] == pytest.approx([0.5, 0.375, 0.25][seen])
        assert mine["cur_lr"] == pytest.approx([1e-3, 5.5e-4, 1e-4][seen])
    assert mine["cur_lr"] == pytest.approx(1e-4)
    assert trainer.get_policy().counted == 3 * 2 * 2


def test_a_trainer_that_was_built_with_mixins_can_be_derived_from():
    class Greeting:
        def greet(self):
            return "hello"

    class Parting:
        def part(self):
            return "goodbye"

    built = build_trainer(name="Built", mixins=[Greeting])
    derived = built.with_updates(name="Derived")
    assert derived.greet(None) == "hello"
    both = derived.with_updates(name="Both", mixins=[Greeting, Parting])
    assert (both.greet(None), both.part(None)) == ("hello", "goodbye")


def test_add_mixins_leaves_out_what_is_there():
    class Base: ...

    class First: ...

    class Second: ...

    made = add_mixins(Base, [First, Second])
    assert [cls.__name__ for cls in made.__mro__[:-1]] == ["Base", "Second", "Base", "First", "Base"]
    assert add_mixins(made, [First]) is made
    assert add_mixins(made, None) is made


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_optimisers_begin_at_what_the_schedule_begins_with(framework):
    trainer = PPOTrainer({**CONFIG, "framework": framework, "lr": 1.0, "entropy_coeff": 9.0}, env="CartPole-v1")
    policy = trainer.get_policy()
    (optimizer,) = policy._optimizers
    rate = optimizer.param_groups[0]["lr"] if framework == "torch" else float(optimizer.learning_rate)
    assert (rate, policy.cur_lr, policy.entropy_coeff) == pytest.approx((1e-3, 1e-3, 0.5))
