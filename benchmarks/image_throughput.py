"""How many bytes of image samples reach the learner's process, beside Ray's own put and get of as large arrays.

An environment that gives 84x84x4 uint8 observations at no cost, 2 remote workers, fragments of 50 x 4 slots, four of
them to a train batch. Workers step it, collect, and send; their policy has no network, so that no convolution's
arithmetic is measured. Beside it stand the same without `share_memory`, through Ray's object store, and what two
workers sample where a convolution acts. Ray's figure is of one process that puts an array of a fragment's size, gets
it, and copies it, with the machine to itself; and of two plain actors that return such arrays to a loop that joins
four of them.

python benchmarks/image_throughput.py [--seconds 10] [--rounds 3]
"""

import argparse
import time
from typing import Any

from common import alternate, report  # isort: skip - sets the number of threads before torch is loaded

import gymnasium as gym
import numpy as np

from rlframe.agents.impala import ImpalaTrainer
from rlframe.execution.common import _NextValueNotReady
from rlframe.execution.tree_agg import gather_experiences
from rlframe.policy.policy import Policy

FRAGMENT, SLOTS, EPISODE = 50, 4, 500
CONFIG = {
    "num_workers": 2,
    "num_envs_per_worker": SLOTS,
    "rollout_fragment_length": FRAGMENT,
    "train_batch_size": 4 * FRAGMENT * SLOTS,  # joined: the one copy in the learner's process
    "num_cpus_per_worker": 0.5,
    "log_sys_usage": False,
    "seed": 0,
    "model": {"conv_filters": [[1, [84, 84], 84]]},
}


class Images(gym.Env[Any, Any]):
    """Gives the same image at each step."""

    def __init__(self, config: Any) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = gym.spaces.Discrete(2)
        self.image, self.steps = np.full((84, 84, 4), 7, np.uint8), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.image, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.image, 0.0, self.steps >= EPISODE, False, {}


class Still(Policy):
    """Takes action 0, and has nothing to learn."""

    train_columns: tuple[str, ...] = ()

    def compute_actions(self, obs_batch: Any, *rest: Any, **options: Any) -> Any:
        del rest, options
        return np.zeros(len(obs_batch), np.int64), [], {}

    def get_weights(self) -> dict[str, Any]:
        return {}

    def set_weights(self, weights: Any) -> None:
        del weights


StillTrainer = ImpalaTrainer.with_updates(name="Still", default_policy=Still, get_policy_class=lambda _config: Still)


def main(seconds: float, rounds: int) -> None:
    import ray

    array = np.zeros(FRAGMENT * SLOTS * 84 * 84 * 4, np.uint8)

    def put_and_get() -> float:
        started, size = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            size += ray.get(ray.put(array)).copy().nbytes
        return size / (time.perf_counter() - started) / 1e6

    @ray.remote(num_cpus=0.5)
    class Giver:
        def sample(self) -> Any:
            return array

    def plain_actors() -> float:
        givers = [Giver.remote(), Giver.remote()]
        open_calls = {giver.sample.remote(): giver for giver in givers * 2}
        started, size, fragments = 0.0, 0, []
        while not started or time.perf_counter() - started < seconds:
            ready = ray.wait(list(open_calls), num_returns=1)[0][0]
            giver = open_calls.pop(ready)
            fragments.append(ray.get(ready))
            open_calls[giver.sample.remote()] = giver
            if len(fragments) == 4:
                size += np.concatenate(fragments).nbytes if started else 0
                started = started or time.perf_counter()  # the first ones came while actors started
                fragments = []
        return size / (time.perf_counter() - started) / 1e6

    sides = {
        "samples that reach the learner": lambda: arriving(seconds, {}),
        "ray.put, ray.get and a copy": put_and_get,
        "two plain actors and a loop": plain_actors,
        "through Ray's object store": lambda: arriving(seconds, {"share_memory": False}),
    }
    report("84x84x4 uint8", alternate(sides, rounds), "MB/s")
    print(f"  two workers that act, nothing sent: {acting(seconds):,.0f} MB/s")


def arriving(seconds: float, config: dict[str, Any]) -> float:
    """Returns what reaches the learner's process from two workers, in MB/s."""
    trainer = StillTrainer({**CONFIG, **config}, env=Images)
    batches = gather_experiences(trainer.workers, trainer.config)
    warm = 0  # rows: first episodes, whose observations are checked, are not measured
    while warm < 4 * EPISODE * SLOTS:
        item = next(batches)
        warm += 0 if isinstance(item, _NextValueNotReady) else item.count
    started, size = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        item = next(batches)
        if not isinstance(item, _NextValueNotReady):
            size += item.size_bytes()
    elapsed = time.perf_counter() - started
    batches.close()
    trainer.stop()
    return size / elapsed / 1e6


def acting(seconds: float) -> float:
    """Returns what the workers sample by acting, in MB/s, when nothing of it is sent."""
    import ray

    trainer = ImpalaTrainer(CONFIG, env=Images)
    calls = [worker.apply.remote(_sampled, seconds) for worker in trainer.workers.remote_workers()]
    found = float(sum(ray.get(calls)))
    trainer.stop()
    return found


def _sampled(worker: Any, seconds: float) -> float:
    started, size = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        size += worker.sample().size_bytes()
    return size / (time.perf_counter() - started) / 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    main(**vars(parser.parse_args()))
