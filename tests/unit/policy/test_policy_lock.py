"""Threads act and learn with a policy in turn: a model's value_function() tells of the forward pass before it."""

import copy
import pickle
import threading

import numpy as np
import pytest
from torch import nn

from rlframe.agents.pg import PGTorchPolicy, PGTrainer
from rlframe.agents.registry import get_trainer_class
from rlframe.examples.env.bandit_envs import LinearDiscreteEnv
from rlframe.models import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.policy_lock import PolicyLock
from rlframe.policy.value_network import value_of_step
from tests.helpers.envs import Bandit

WAIT_S = 20.0


class Model(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.logits = nn.Linear(obs_space.shape[0], num_outputs)
        self.value = nn.Linear(obs_space.shape[0], 1)

    def forward(self, input_dict, state, seq_lens):
        self.features = input_dict["obs_flat"].float()
        return self.logits(self.features), state

    def value_function(self):
        return self.value(self.features).squeeze(1)


@pytest.mark.parametrize(
    ("learns", "other"),
    [
        ("compute_gradients", lambda trainer, obs: trainer.get_policy().compute_actions(obs)),
        ("learn_on_batch", lambda trainer, obs: trainer.get_policy().compute_actions(obs)),
        ("learn_on_batch", lambda trainer, obs: trainer.get_policy().compute_log_likelihoods(np.zeros(1, int), obs)),
        ("learn_on_batch", lambda trainer, obs: trainer.get_policy().act_on_rows(obs)),
        ("learn_on_batch", lambda trainer, obs: value_of_step(trainer.get_policy(), obs[0])),
        ("learn_on_batch", lambda trainer, obs: trainer.get_weights()),
        ("learn_on_batch", lambda trainer, obs: trainer.__getstate__()),
    ],
)
def test_nobody_acts_or_copies_weights_between_two_halves_of_a_learner_step(learns, other):
    begun, done, rows = threading.Event(), threading.Event(), []

    def loss(policy, model, dist_class, train_batch):
        logits, _ = model(train_batch)
        begun.set()
        assert not done.wait(0.1)
        rows.append(len(model.value_function()))
        return logits.mean()

    ModelCatalog.register_custom_model("two_halves", Model)
    trainer = PGTrainer.with_updates(name="Mine", default_policy=PGTorchPolicy.with_updates(loss_fn=loss))(
        {
            "num_workers": 0,
            "rollout_fragment_length": 8,
            "train_batch_size": 8,
            "model": {"custom_model": "two_halves"},
        },
        env=Bandit,
    )
    batch = trainer.workers.local_worker().sample()
    obs = np.asarray(batch["obs"][:1])
    begun.clear()
    rows.clear()
    errors = []

    def learn():
        try:
            getattr(trainer.get_policy(), learns)(batch)
        except BaseException as error:
            errors.append(error)

    def act():
        other(trainer, obs)
        done.set()

    learner, actor = threading.Thread(target=learn, daemon=True), threading.Thread(target=act, daemon=True)
    learner.start()
    assert begun.wait(WAIT_S)
    actor.start()
    learner.join(WAIT_S)
    actor.join(WAIT_S)
    assert (errors, rows, done.is_set()) == ([], [8], True)


@pytest.mark.parametrize(
    ("algorithm", "env", "part", "called"),
    [("PPO", Bandit, None, "_before_learning"), ("TRPO", Bandit, None, "_before_learning"),
     ("contrib/LinUCB", LinearDiscreteEnv, "model", "partial_fit")],
)  # fmt: skip
def test_learner_steps_of_their_own_hold_it(algorithm, env, part, called, monkeypatch):
    trainer = get_trainer_class(algorithm)({"num_workers": 0, "rollout_fragment_length": 8}, env=env)
    policy, batch, free = trainer.get_policy(), trainer.workers.local_worker().sample(), []
    owner = policy if part is None else getattr(policy, part)
    inner = getattr(owner, called)

    def look(*args):
        other = threading.Thread(target=lambda: free.append(policy._policy_lock.acquire(blocking=False)))
        other.start()
        other.join(WAIT_S)
        return inner(*args)

    monkeypatch.setattr(owner, called, look)
    policy.learn_on_batch(batch)
    assert free == [False]


def test_rllibs_name_is_the_same_lock_and_copies_have_their_own():
    policy = PGTrainer({"num_workers": 0}, env=Bandit).get_policy()
    assert policy._lock is policy._lock is policy._policy_lock
    with policy._lock, policy._policy_lock:
        pass
    for copied in (copy.deepcopy(policy._lock), pickle.loads(pickle.dumps(policy._lock))):
        assert isinstance(copied, PolicyLock)
        assert copied is not policy._lock
