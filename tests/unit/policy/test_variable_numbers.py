"""What programs for RLlib read as variables of a policy; see `test_tf_policy` for the learning rate."""

import pickle

import pytest

from tests.contract.test_policies import make, make_batch
from tests.helpers.frameworks import TORCH_FIRST


@pytest.mark.parametrize("name", ["SAC", "TD3"])
@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_global_step_counts_updates(framework, name):
    policy = make(framework, name, {})
    policy.learn_on_batch(make_batch(name=name))
    policy.learn_on_batch(make_batch(name=name))
    assert policy.global_step == policy.num_updates == policy.global_step.numpy() == 2
    assert type(pickle.loads(pickle.dumps(policy.global_step))) is int
    policy.global_step = 7  # as copies of RLlib's policies begin their own
    policy.global_step += 1
    assert (policy.global_step, policy.num_updates) == (8, 2)
