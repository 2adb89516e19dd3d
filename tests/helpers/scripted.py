"""Trainers on scripted environments with several agents, and what they sample."""

import numpy as np

from rlframe.agents.pg import PGTrainer
from tests.helpers.multi_agent_envs import Script

SMALL = {"fcnet_hiddens": [4]}


def trainer(script, cls=PGTrainer, env=Script, **config):
    settings = {
        "num_workers": 0,
        "rollout_fragment_length": 4,
        "train_batch_size": 4,
        "model": SMALL,
        "seed": 1,
        "min_iter_time_s": 0,
        "log_sys_usage": False,
        "env_config": {"script": script} if script else {},
        **config,
    }
    return cls(settings, env=env)


def sample(script, **config):
    made = trainer(script, **config)
    worker = made.workers.local_worker()
    return worker.sample(), worker


def rows(batch, *names):
    """Rows as tuples, by agent."""
    columns = [np.asarray(batch[name]).reshape(len(batch)).tolist() for name in ("agent_index", *names)]
    found = {}
    for agent, *values in zip(*columns, strict=True):
        found.setdefault(agent, []).append(tuple(values))
    return found
