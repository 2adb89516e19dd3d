"""Programs that tests kill: `server DIRECTORY PORT`, `client URL MODE NUMBER LOG`; each ends when a file says so."""

import json
import os
import sys
import time

import gymnasium as gym
import numpy as np

SPACE = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)


def server(directory, port):
    """Stores each row once, and saves all of them after each iteration; goes on from what is there."""
    from rlframe.agents.dqn import SimpleQTrainer
    from rlframe.env import PolicyServerInput

    trainer = SimpleQTrainer(
        {
            "env": None, "observation_space": SPACE, "action_space": gym.spaces.Discrete(2), "num_workers": 0,
            "seed": 1,
            "input": lambda ioctx: PolicyServerInput(ioctx, "localhost", int(port), 0.5, session_timeout_s=1.0),
            "input_evaluation": [], "model": {"fcnet_hiddens": [4]}, "rollout_fragment_length": 4,
            "replay_buffer_config": {"capacity": 100_000}, "learning_starts": 8, "train_batch_size": 8,
            "timesteps_per_iteration": 16, "min_iter_time_s": 0, "log_sys_usage": False, "compress_observations": False,
        },
        logger_creator=lambda config: _Silent(directory),
    )  # fmt: skip
    pointer = os.path.join(directory, "newest")
    if os.path.exists(pointer):
        with open(pointer) as file:
            trainer.restore(file.read())
    while not os.path.exists(os.path.join(directory, "stop")):
        trainer.train()
        path = trainer.save(directory)
        with open(f"{pointer}.tmp", "w") as file:
            file.write(path)
        os.replace(f"{pointer}.tmp", pointer)
    with open(os.path.join(directory, "stopped"), "w"):
        worker, over = trainer.workers.local_worker(), False
    while not over:  # clients end, and everything that they brought and told is stored
        ended = os.path.exists(os.path.join(directory, "over"))
        rows = worker.sample()
        if rows.count:
            trainer.local_replay_buffer.add_batch(rows)
        health = worker.input_reader.health()
        over = ended and not (rows.count or health["waiting_batches"] or health["open_episodes"])
    kept = trainer.local_replay_buffer.get_state()["buffers"]["default_policy"]["store"]["observations"]
    np.save(os.path.join(directory, "stored.npy"), kept["rows"][kept["links"][0]])
    os._exit(0)


class _Silent:
    def __init__(self, logdir):
        self.logdir = logdir

    def on_result(self, result):
        pass

    def flush(self):
        pass

    def close(self):
        pass


def client(url, mode, number, log):
    """Plays episodes of five steps with observations that occur once, and notes each whole row, when it is told."""
    from rlframe.env import PolicyClient

    policy = PolicyClient(url, mode, update_interval=0.5, reconnect_s=60.0)
    count, stop = 0, f"{log}.stop"
    with open(log, "a") as told:
        while not os.path.exists(stop):
            try:
                episode = policy.start_episode()
                for step in range(5):
                    count += 1
                    policy.get_action(episode, np.array([float(number), count], np.float32))
                    if step:
                        _note(told, count - 1)
                    policy.log_returns(episode, 1.0)
                    time.sleep(0.005)
                policy.end_episode(episode, np.array([float(number), -1], np.float32))
                _note(told, count)
            except ValueError as error:  # another server does not know the episode
                told.write(json.dumps(f"lost: {error}") + "\n")
                count += 1
        policy.close()


def _note(told, count):
    told.write(f"{count}\n")
    told.flush()


if __name__ == "__main__":
    {"server": server, "client": client}[sys.argv[1]](*sys.argv[2:])
