"""Calls of workers that a `training_iteration` keeps under way itself."""

import copy

import pytest

from rlframe.agents.pg import PGTrainer
from rlframe.execution.iteration_ops import train_one_step
from rlframe.execution.parallel_requests import (
    asynchronous_parallel_requests,
    asynchronous_parallel_sample,
    wait_asynchronous_requests,
)
from tests.ray.test_failures import CONFIG

pytestmark = [pytest.mark.ray]


class Asynchronous(PGTrainer):
    """Trains on whatever has come, as Ray 1.13's A3C and DDPPO."""

    def training_iteration(self):
        came = asynchronous_parallel_requests(
            self.remote_requests_in_flight, actors=self.workers.remote_workers(), ray_wait_timeout_s=60
        )
        infos = {}
        for batch in (batch for batches in came.values() for batch in batches):
            self._counters["num_env_steps_sampled"] += batch.env_steps()
            self._counters["num_agent_steps_sampled"] += batch.agent_steps()
            infos = train_one_step(self, batch)
        self.workers.sync_weights()
        return infos


@pytest.fixture
def trainer(ray_runtime):
    made = Asynchronous(copy.deepcopy(CONFIG), env="CartPole-v1")
    yield made
    made.stop()


def test_a_method_trains_on_what_has_come(trainer):
    before = trainer.get_policy().get_weights()
    result = trainer.train()
    assert result["timesteps_total"] >= 40
    assert "default_policy" in result["info"]["learner"]
    after = trainer.get_policy().get_weights()
    assert any((before[name] != after[name]).any() for name in before)


def test_calls_are_counted_by_actor_and_waited_for_only_of_those_asked(trainer):
    one, two = trainer.workers.remote_workers()
    flying = {}
    indexes = asynchronous_parallel_requests(
        flying,
        [one, two],
        60,
        remote_fn=lambda worker, offset, factor: (worker.worker_index + offset) * factor,
        remote_args=[[10], [20]],
        remote_kwargs=[{"factor": 2}, {"factor": 3}],
    )
    assert indexes == {one: [22], two: [66]}
    assert flying == {one: set(), two: set()}
    several = asynchronous_parallel_requests(
        flying, [one], 60, 2, lambda worker: worker.worker_index, num_requests_to_launch=5
    )
    assert several == {one: [1, 1]}  # no more than two at once
    came = asynchronous_parallel_requests(flying, [one, two], 0, remote_fn=lambda worker: worker.sample().count)
    assert sum(map(len, came.values())) + sum(map(len, flying.values())) == 2
    while any(flying.values()):
        assert set(wait_asynchronous_requests(flying)) <= {one, two}
    assert asynchronous_parallel_requests(flying, [one], remote_fn=None) == {}
    with pytest.raises(ValueError, match="remote_args: got 1, wanted one for each of the 2 actors"):
        asynchronous_parallel_requests(flying, [one, two], remote_args=[[1]])


def test_ray_111_had_samples_as_a_list(trainer):
    batches = asynchronous_parallel_sample(trainer, trainer.workers.remote_workers(), ray_wait_timeout_s=60)
    assert [batch.count for batch in batches] == [20, 20]
