"""How much each of several workers explores."""

from __future__ import annotations


def per_worker_constant(num_workers: int, worker_index: int) -> float | None:
    """Returns the constant that a worker explores with, so that workers cover everything from greedy to random.

        0.4^(1 + 7·i/(N−1)), i = worker_index − 1

    Args:
        num_workers: N, the number of remote workers.
        worker_index: 1 to N; 0 is the local worker.

    Returns:
        The constant; 0 for the local worker beside remote ones, which is there to be evaluated; None without remote
        workers, where there is nothing to spread over.

    Source: Horgan et al. 2018, "Distributed Prioritized Experience Replay", section 4.1 (ε = 0.4, α = 7).
    """
    if num_workers <= 0:
        return None
    if worker_index <= 0:
        return 0.0
    # Workers may number more than the config says (evaluation); the last share serves them too.
    place = min(worker_index, num_workers) - 1
    return float(0.4 ** (1.0 + 7.0 * place / max(num_workers - 1, 1)))
