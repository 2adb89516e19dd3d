"""Learning from the same files as d3rlpy: the same updates, batch size, networks and rates; returns in the environment.

python benchmarks/offline_against_d3rlpy.py --data DIR --env Pendulum-v1 [--algorithms BC CQL IQL] [--updates 5000]
    [--seeds 0 1 2 3 4] [--episodes 20] [--hiddens 256 256] [--rate 3e-4] [--tau 0.005] [--sides rlframe d3rlpy] [--gpu]

Needs d3rlpy, which brings Gymnasium 1.0.0, too old for rlframe; it runs with a newer one: pip install d3rlpy, then
pip install -U gymnasium.

DIR is a dataset of `rlframe data make`, or what a trainer's `output` wrote; actions are in [-1, 1]. `--rate` and
`--tau` are learning rates and the targets' speed of both sides. Values reach the share 1 - exp(-n tau (1 - gamma)) of
what they should be after n updates, a tenth after 2,000 with the usual 0.005: short runs of CQL and IQL need a larger
tau. Several `--updates` are of one training, which is stopped for episodes at each. Ends with each side's mean over
the seeds and its 95 % interval (Student's t), for each number of updates.
"""

import argparse
import importlib.util
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from common import alternate as _alternate  # isort: skip # noqa: F401 - sets the number of threads before torch is loaded

import gymnasium as gym
import numpy as np
import torch

from rlframe.agents.registry import get_trainer_class
from rlframe.offline.datasets import read_dataset
from rlframe.utils.spaces.space_maps import unsquash_action

torch.set_num_threads(1)

BATCH = 256
#: Hidden layers of all networks; `--hiddens` sets others.
HIDDENS = [256, 256]
#: Whether both sides learn on a GPU; `--gpu` sets it.
GPU = [False]
SECTION = {"fcnet_hiddens": HIDDENS, "fcnet_activation": "relu"}
CRITICS = {"Q_model": SECTION, "policy_model": SECTION, "initial_weights": "fan_in"}
#: Keys of rlframe's algorithms, and arguments of d3rlpy's of the same name, which give both the same settings.
OURS = {
    "BC": {"model": SECTION, "lr": 1e-3, "replay_buffer_config": {"capacity": 1_000_000}},
    "CQL": {
        **CRITICS,
        "bc_iters": 0,
        "mean_target_actions": True,  # as d3rlpy's targets
        "optimization": {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "entropy_learning_rate": 1e-3},
    },
    "IQL": {**CRITICS, "actor_lr": 3e-4, "critic_lr": 3e-4},
    "TD3BC": {"actor_hiddens": HIDDENS, "critic_hiddens": HIDDENS},
}
THEIRS = {
    "BC": ("BCConfig", {"learning_rate": 1e-3}),  # its default, squared errors of a mean in [-1, 1]
    "CQL": (
        "CQLConfig",
        {
            "actor_learning_rate": 1e-3,
            "critic_learning_rate": 1e-3,
            "temp_learning_rate": 1e-3,
            "alpha_learning_rate": 0.0,  # the penalty's weight stays 1, as without `lagrangian`
            "alpha_threshold": 0.0,
        },
    ),
    "IQL": ("IQLConfig", {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}),
    "TD3BC": ("TD3PlusBCConfig", {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}),
}
#: What `--rate` and `--tau` set, on our side and theirs, by algorithm.
RATES = {
    "BC": (("lr",), ("learning_rate",)),
    "CQL": (("optimization",), ("actor_learning_rate", "critic_learning_rate", "temp_learning_rate")),
    "IQL": (("actor_lr", "critic_lr"), ("actor_learning_rate", "critic_learning_rate")),
    "TD3BC": (("actor_lr", "critic_lr"), ("actor_learning_rate", "critic_learning_rate")),
}
#: 97.5 % points of Student's t by the number of seeds.
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}

Act = Callable[[np.ndarray], np.ndarray]


def mean_return(act: Act, env_name: str, episodes: int) -> float:
    """Returns the mean return of episodes whose seeds are the same for all; `act` gives actions in [-1, 1]."""
    env, returns = gym.make(env_name), []
    for episode in range(episodes):
        obs, _ = env.reset(seed=1000 + episode)
        total, done = 0.0, False
        while not done:
            action = unsquash_action(np.clip(act(np.asarray(obs, np.float32)), -1.0, 1.0), env.action_space)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    return statistics.mean(returns)


def ours(name: str, data: str, env_name: str, marks: Sequence[int], seed: int) -> Iterator[Act]:
    """Yields what an rlframe policy does without exploration after each of these numbers of updates."""
    step = math.gcd(*marks)
    config = {
        "input": data,
        "actions_in_input_normalized": True,
        "train_batch_size": BATCH,
        "seed": seed,
        "num_gpus": int(GPU[0]),
    }
    if name == "BC":  # reads a line for each update: first all there are, so that it draws from all of them
        config |= {"learning_starts": sum(batch.count for batch in read_dataset(data))}
    else:
        config |= {"timesteps_per_iteration": BATCH * step}
    trainer = get_trainer_class(name)({**config, **OURS[name], "log_sys_usage": False}, env=env_name)
    policy = trainer.get_policy()
    for mark in marks:
        while policy.num_updates < mark:
            trainer.train()
        yield lambda obs: policy.compute_actions(obs[None], explore=False)[0][0]


def theirs(name: str, data: str, env_name: str, marks: Sequence[int], seed: int) -> Iterator[Act]:
    """Yields what a d3rlpy policy does after each of these numbers of updates."""
    import d3rlpy

    del env_name
    step = math.gcd(*marks)
    d3rlpy.seed(seed)
    config, arguments = THEIRS[name]
    layers = d3rlpy.models.VectorEncoderFactory(HIDDENS)
    parts = ("encoder",) if name == "BC" else ("actor_encoder", "critic_encoder")
    parts += ("value_encoder",) if name == "IQL" else ()
    arguments = {**arguments, **{f"{part}_factory": layers for part in parts}}
    algorithm = getattr(d3rlpy.algos, config)(batch_size=BATCH, **arguments).create(device=GPU[0])
    quiet = {"show_progress": False, "logger_adapter": d3rlpy.logging.NoopAdapterFactory()}
    epochs = algorithm.fitter(dataset_of(data), n_steps=marks[-1], n_steps_per_epoch=step, **quiet)
    for epoch, _ in epochs:
        if epoch * step in marks:
            yield lambda obs: algorithm.predict(obs[None])[0]


def dataset_of(data: str):
    """Returns the rows as a dataset of d3rlpy's, with an end where the next row begins with another observation."""
    import d3rlpy

    names = ("obs", "actions", "rewards", "new_obs", "terminateds")
    batches = list(read_dataset(data))
    rows = {name: np.concatenate([np.asarray(batch[name]) for batch in batches]) for name in names}
    goes_on = np.append((rows["new_obs"][:-1] == rows["obs"][1:]).all(axis=1), False)
    terminal = rows["terminateds"].astype(bool)
    return d3rlpy.dataset.MDPDataset(
        rows["obs"].astype(np.float32),
        rows["actions"].reshape(len(terminal), -1).astype(np.float32),
        rows["rewards"].astype(np.float32).reshape(-1, 1),
        terminal.astype(np.float32),
        (~goes_on & ~terminal).astype(np.float32),
    )


def set_both(name: str, rate: float | None, tau: float | None) -> None:
    """Sets an algorithm's learning rates and the speed of its targets on both sides; None leaves them as they are."""
    mine, others = OURS[name], THEIRS[name][1]
    if rate is not None:
        for key in RATES[name][0]:
            mine[key] = dict.fromkeys(mine[key], rate) if key == "optimization" else rate
        others.update(dict.fromkeys(RATES[name][1], rate))
    if tau is not None and name != "BC":
        mine["tau"] = others["tau"] = tau


def interval(returns: Sequence[float]) -> str:
    """Returns the mean with half of its 95 % interval, and the figures by seed."""
    told = f"{statistics.mean(returns):10,.1f}"
    if len(returns) in STUDENT:
        told += f" ± {STUDENT[len(returns)] * statistics.stdev(returns) / len(returns) ** 0.5:,.1f}"
    return f"{told}   by seed: {', '.join(f'{value:,.1f}' for value in returns)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--algorithms", nargs="+", default=["BC", "CQL", "IQL"], choices=sorted(OURS))
    parser.add_argument("--updates", nargs="+", type=int, default=[5000])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--hiddens", nargs="+", type=int, default=HIDDENS)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--tau", type=float)
    parser.add_argument("--sides", nargs="+", default=["rlframe", "d3rlpy"], choices=["rlframe", "d3rlpy"])
    parser.add_argument("--gpu", action="store_true")
    given = parser.parse_args()
    if "d3rlpy" in given.sides and not importlib.util.find_spec("d3rlpy"):
        parser.error("d3rlpy is not installed: pip install d3rlpy, or leave it out with --sides rlframe")
    HIDDENS[:], GPU[:] = given.hiddens, [given.gpu]
    learn = {"rlframe": ours, "d3rlpy": theirs}
    marks = sorted(given.updates)
    for name in given.algorithms:
        set_both(name, given.rate, given.tau)
        print(f"{name} on {given.env}, updates of {BATCH} rows of {given.data}", flush=True)
        found: dict[tuple[int, str], list[float]] = {(mark, side): [] for mark in marks for side in given.sides}
        for seed in given.seeds:
            for side in given.sides:
                learned = learn[side](name, given.data, given.env, marks, seed)
                for mark, act in zip(marks, learned, strict=True):
                    found[mark, side].append(mean_return(act, given.env, given.episodes))
                    told = f"  seed {seed}, {side:<8} {mark:>9,} updates {found[mark, side][-1]:10,.1f}"
                    print(f"{told}   {time.process_time():7,.0f} CPU s of the process", flush=True)
        for (mark, side), returns in found.items():
            print(f"  {side:<8} {mark:>9,} updates {interval(returns)}", flush=True)


if __name__ == "__main__":
    main()
