"""Requests per second and latency of a served policy: PPO for CartPole, JSON bodies, callers in another process.

python benchmarks/serve.py
"""

import multiprocessing
import threading
import time

import common  # noqa: F401 - one thread
import numpy as np

from rlframe.serving.served_policy import ServedPolicy

SECONDS = 5.0


def call(url, callers, found):
    """Calls from as many threads, and puts each request's seconds."""
    seconds = [[] for _ in range(callers)]
    end = time.perf_counter() + SECONDS

    def one(taken):
        policy, obs = ServedPolicy(url), np.zeros(4, np.float32)
        while time.perf_counter() < end:
            began = time.perf_counter()
            policy.act(obs)
            taken.append(time.perf_counter() - began)

    threads = [threading.Thread(target=one, args=(taken,)) for taken in seconds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.put([each for taken in seconds for each in taken])


def main():
    from rlframe.agents.ppo import PPOTrainer
    from rlframe.serving.policy_service import PolicyService
    from rlframe.serving.web import ServiceServer

    service = PolicyService(PPOTrainer({"env": "CartPole-v1", "num_workers": 0}))
    context = multiprocessing.get_context("spawn")
    with ServiceServer(service, port=0) as server:
        for callers in (1, 8, 32):
            rows, batches, found = service.rows, service.batches, context.Queue()
            process = context.Process(target=call, args=(server.url, callers, found))
            process.start()
            taken = np.array(found.get())
            process.join()
            p50, p99 = np.percentile(taken, [50, 99]) * 1e3
            together = (service.rows - rows) / (service.batches - batches)
            print(
                f"{callers:>3} callers  {len(taken) / SECONDS:>7,.0f} requests/s  p50 {p50:.2f} ms  p99 {p99:.2f} ms  "
                f"{together:.1f} rows in a pass"
            )


if __name__ == "__main__":
    main()
