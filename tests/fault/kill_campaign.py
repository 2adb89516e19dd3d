"""Workers killed at random instants, and what trainers make of it: `make kills`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlframe.agents.registry import get_trainer_class
from rlframe.env.multi_agent_env import MultiAgentEnv, make_multi_agent
from rlframe.execution.plan.nodes import walk
from rlframe.execution.replay_shards import ReplayShards
from rlframe.execution.tree_agg import _AggregatedBatches
from rlframe.policy.policy import PolicySpec

MODES = {"replace": "recreate_failed_workers", "drop": "ignore_worker_failures"}
#: Seconds between two kills, at least and at most.
PAUSE_S = (0.1, 2.0)
COUNTERS = ("num_steps_sampled", "num_steps_trained", "num_agent_steps_sampled")
WORKERS = 3


class Counted(gym.Env):
    """Noise of ten steps; counts its steps in a file of its own, which outlives its process."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.file, _ = tempfile.mkstemp(dir=config["ledger"])
        self.made, self.ended = 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        self.made += 1
        self.ended += self.steps == 10
        os.pwrite(self.file, f"{self.made:12d}{self.ended:12d}".encode(), 0)
        return self._look(), 1.0, self.steps == 10, False, {}

    def _look(self):
        return self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)


class Pair(make_multi_agent(Counted)):  # type: ignore[misc]  # a class that is made
    """Two agents, each with a ledger of its own."""

    def __init__(self, config):
        super().__init__({**config, "num_agents": 2})


class Team(MultiAgentEnv):
    """The same two as one group."""

    def __new__(cls, config):
        both = gym.spaces.Tuple([Counted.observation_space] * 2)
        acts = gym.spaces.Tuple([Counted.action_space] * 2)
        return Pair(config).with_agent_groups({"team": [0, 1]}, obs_space=both, act_space=acts)


def counted(directory: Path) -> tuple[int, int]:
    """Returns the steps and the ends of episodes that all environments together have made."""
    texts = [path.read_text() for path in directory.iterdir()]
    made = [(int(text[:12]), int(text[12:])) for text in texts if text]
    return sum(steps for steps, _ in made), sum(ends for _, ends in made)


SAMPLED = {"rollout_fragment_length": 10, "train_batch_size": 60}
REPLAYED = {"learning_starts": 60, "rollout_fragment_length": 10, "train_batch_size": 16}
MEMORY = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 10}
V_TRACE = {**SAMPLED, "train_batch_size": 40}
CASES: dict[str, dict[str, Any]] = {
    "DQN": REPLAYED,
    "SimpleQ": REPLAYED,
    "APEX": {**REPLAYED, "optimizer": {"num_replay_buffer_shards": 2}, "replay_buffer_config": {"capacity": 1000}},
    "PG": SAMPLED,
    "A2C": SAMPLED,
    "A3C": SAMPLED,
    "PPO": {**SAMPLED, "sgd_minibatch_size": 20, "num_sgd_iter": 2},
    "PQN": {**SAMPLED, "sgd_minibatch_size": 20, "num_sgd_iter": 2, "num_envs_per_worker": 2},
    "APPO": V_TRACE,
    "IMPALA": V_TRACE,
    "IMPALA, aggregated": {**V_TRACE, "num_aggregation_workers": 2},
    "ACER": {**SAMPLED, "learning_starts": 60},
    "R2D2": {**REPLAYED, "train_batch_size": 80, "burn_in": 4, "model": MEMORY},
    "DDPPO": {"rollout_fragment_length": 20, "num_envs_per_worker": 1, "sgd_minibatch_size": 10, "num_sgd_iter": 2},
    "QMIX": {"learning_starts": 20, "train_batch_size": 8, "model": {"lstm_cell_size": 8}},
    "MADDPG": {"learning_starts": 60, "train_batch_size": 16, "rollout_fragment_length": 10},
}
ENVS = {"QMIX": Team, "MADDPG": Pair}


def config_of(name: str, mode: str, ledger: str) -> dict[str, Any]:
    """Returns the config of a case: small and quick, with evaluation in a process of its own."""
    config: dict[str, Any] = {
        "num_workers": WORKERS,
        "num_cpus_per_worker": 0.01,
        "seed": 1,
        "min_iter_time_s": 0,
        "timesteps_per_iteration": 120,
        "model": {"fcnet_hiddens": [8]},
        "log_sys_usage": False,
        "observation_filter": "NoFilter" if name in ENVS else "MeanStdFilter",
        "evaluation_num_workers": 1,
        "evaluation_interval": 3,
        "evaluation_num_episodes": 2,
        "env_config": {"ledger": ledger},
        "evaluation_config": {"env_config": {"ledger": tempfile.mkdtemp(prefix="evaluation")}},
        MODES[mode]: True,
        **CASES[name],
    }
    if name == "MADDPG":
        del config["model"]  # its networks have keys of their own
        config["multiagent"] = {
            "policies": {f"p{agent}": PolicySpec(config={"agent_id": agent}) for agent in range(2)},
            "policy_mapping_fn": lambda agent: f"p{agent}",
        }
    return config


class Killer(threading.Thread):
    """Kills a worker, an evaluation worker or a helper of the plan at random instants, by SIGKILL or through Ray."""

    def __init__(self, trainer: Any, kills: int, rng: random.Random, spares: int) -> None:
        super().__init__(daemon=True)
        self.trainer, self.left, self.rng, self.spares = trainer, kills, rng, spares
        self.killed: list[Any] = []
        self.kinds = {"worker": 0, "evaluation": 0, "helper": 0}
        self.paused = threading.Lock()
        self.pids: dict[Any, int] = {}

    def run(self) -> None:
        while self.left:
            time.sleep(self.rng.uniform(*PAUSE_S))
            with self.paused:
                self.left -= self.strike()

    def strike(self) -> bool:
        """Kills one of those that live, if one can be spared."""
        import ray

        groups = {
            "worker": list(self.trainer.workers.remote_workers()),
            "evaluation": list(self.trainer.evaluation_workers.remote_workers()),
            "helper": helpers(self.trainer),
        }
        alive = {kind: [actor for actor in group if actor not in self.killed] for kind, group in groups.items()}
        if len(alive["worker"]) <= self.spares:
            alive["worker"] = []
        kind = self.rng.choices(list(alive), [6, 1, 2])[0]
        if not alive[kind]:
            return False
        actor = self.rng.choice(alive[kind])
        self.killed.append(actor)
        self.kinds[kind] += 1
        if kind != "helper" and self.rng.random() < 0.5:
            with contextlib.suppress(ray.exceptions.RayError, ProcessLookupError):
                os.kill(ray.get(actor.apply.remote(_pid), timeout=20), signal.SIGKILL)
                return True
        ray.kill(actor)
        return True


def _pid(_: Any) -> int:
    return os.getpid()


def helpers(trainer: Any) -> list[Any]:
    """Returns the processes that join the fragments of others, or store them."""
    shards = trainer.local_replay_buffer
    if isinstance(shards, ReplayShards):
        return list(shards._actors)
    node = trainer.train_exec_impl._node
    sources = [getattr(each, "_iterator", None) for each in walk(node)] if node is not None else []
    return [actor for source in sources if isinstance(source, _AggregatedBatches) for actor in source._actors]


class Told(logging.Handler):
    """Counts the deaths that warnings tell of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.deaths = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.deaths += len(re.findall(r"worker \d+ died", record.getMessage()))


class Run:
    """One algorithm in one mode, and what went wrong."""

    def __init__(self, name: str, mode: str, kills: int, seed: int) -> None:
        self.name, self.mode, self.kills, self.seed = name, mode, kills, seed
        self.faults: list[str] = []
        self.trains = self.saves = 0
        self.last: dict[str, int] = {}

    def go(self) -> None:
        """Trains, and saves now and then, until all kills are done and known."""
        told = Told()
        logging.getLogger("rlframe").addHandler(told)
        with tempfile.TemporaryDirectory(prefix="ledger") as ledger, tempfile.TemporaryDirectory() as parent:
            config = config_of(self.name, self.mode, ledger)
            algorithm = self.name.partition(",")[0]
            self.trainer = get_trainer_class(algorithm)(config, env=ENVS.get(self.name, Counted))
            # One must be left where the dead are not replaced.
            killer = Killer(self.trainer, self.kills, random.Random(self.seed), spares=int(self.mode == "drop"))
            killer.start()
            try:
                while killer.is_alive():
                    self.round(Path(ledger), parent)
                    if self.mode == "drop" and len(self.trainer.workers.remote_workers()) <= 1:
                        self.refill(killer)
                for _ in range(4):  # those that died last are met now
                    self.round(Path(ledger), parent)
            finally:
                killer.left = 0
                killer.join()
                self.kinds = killer.kinds
                logging.getLogger("rlframe").removeHandler(told)
                self.trainer.stop()
        self.told = told.deaths
        if sum(killer.kinds.values()) < self.kills:
            self.faults.append("the killer failed; its error is above")
        deaths = killer.kinds["worker"] + killer.kinds["evaluation"]
        if told.deaths != deaths:
            self.faults.append(f"{deaths} workers were killed, {told.deaths} deaths were said")

    def refill(self, killer: Killer) -> None:
        """Adds workers where all but one are gone, as a program may."""
        with killer.paused:
            self.trainer.workers.add_workers(WORKERS)
            self.trainer.try_recover_from_step_attempt()

    def round(self, ledger: Path, parent: str) -> None:
        """Trains once, saves every third time, and checks what is counted."""
        self.trains += 1
        try:
            result = self.trainer.train()
        except Exception:
            self.faults.append(f"train() raised: {traceback.format_exc(limit=-2)}")
            return
        self.check(result, ledger)
        if self.trains % 3:
            return
        self.saves += 1
        try:
            self.trainer.save(parent)
        except Exception:
            self.faults.append(f"save() raised: {traceback.format_exc(limit=-2)}")

    def check(self, result: dict[str, Any], ledger: Path) -> None:
        """Notes counters that went back, and what was counted that no environment has done."""
        now = {key: result[key] for key in ("timesteps_total", "episodes_total")}
        now |= {key: result["info"].get(key, 0) for key in COUNTERS}
        self.faults += [
            f"{key} went from {self.last[key]} to {value}"
            for key, value in now.items()
            if value < self.last.get(key, 0)
        ]
        self.last = now
        made, ended = counted(ledger)
        agents = 2 if self.name in ENVS else 1
        if now["timesteps_total"] * agents > made:
            self.faults.append(f"{now['timesteps_total']} steps were counted, {made // agents} were made")
        if now["episodes_total"] * agents > ended:
            self.faults.append(f"{now['episodes_total']} episodes were counted, {ended // agents} were ended")
        if result["training_iteration"] % 3 == 0 and "evaluation" not in result:
            self.faults.append(f"iteration {self.trains} was not evaluated")


def main() -> int:
    """Runs the campaign, prints a table, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CASES, action="append", help="an algorithm; may be given several times")
    parser.add_argument(
        "--mode", choices=MODES, action="append", help="what is done about dead workers; both if left out"
    )
    parser.add_argument("--kills", type=int, default=20, help="kills for each algorithm in each mode")
    parser.add_argument("--seed", type=int, default=0, help="of the instants and the victims")
    chosen = parser.parse_args()
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    logger = logging.getLogger("rlframe")
    logger.propagate = False
    head = ("algorithm", "dead are", "kills", "eval.", "help.", "train()", "save()", "said", "faults", "s")
    line = "{:<20}{:<10}" + "{:>9}" * 8 + "\n"
    sys.stdout.write(line.format(*head))
    bad = 0
    for name in chosen.only or CASES:
        for mode in chosen.mode or MODES:
            started = time.monotonic()
            run = Run(name, mode, chosen.kills, chosen.seed)
            run.go()
            kinds, seconds = run.kinds, round(time.monotonic() - started)
            figures = (sum(kinds.values()), kinds["evaluation"], kinds["helper"], run.trains, run.saves, run.told)
            sys.stdout.write(
                line.format(name, f"{mode}d".replace("dropd", "dropped"), *figures, len(run.faults), seconds)
            )
            for fault in run.faults:
                sys.stdout.write(f"  FAULT {fault}\n")
            sys.stdout.flush()
            bad += len(run.faults)
    ray.shutdown()
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
