"""A trading project's copy of RLlib's training script: Tune's parser of experiments, flags of its own, a YAML file.

Uses RLlib as the training scripts around `ray.tune.config_parser` do (RLlib's own rllib/train.py, which others
copied): `make_parser(parser_creator=..., formatter_class=...)`, `resources_to_json`, `create_scheduler(name, **config)`,
`run_experiments` of a dict that the flags or a file made, and `tune.Analysis` (of Ray 0.8 to 1.8)
of what was written.
"""

import argparse
from pathlib import Path

import gym
import numpy as np
import ray
import yaml
from rlframe import tune
from rlframe.tune import run_experiments
from rlframe.tune.config_parser import make_parser
from rlframe.tune.registry import register_env
from rlframe.tune.resources import resources_to_json
from rlframe.tune.result import DEFAULT_RESULTS_DIR
from rlframe.tune.schedulers import create_scheduler


class MarketOrders(gym.Env):
    """A price returns to 10: buying below it pays."""

    def __init__(self, config):
        self.length = config.get("length", 20)
        self.observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(3)

    def state(self):
        return np.array([self.price - 10, self.held], np.float32)

    def reset(self):
        self.t, self.price, self.held = 0, 10 + np.random.randn(), 0
        return self.state()

    def step(self, action):
        self.held = int(np.clip(self.held + action - 1, -1, 1))
        move = 0.3 * (10 - self.price)
        self.t, self.price = self.t + 1, self.price + move
        return self.state(), float(self.held * move), self.t >= self.length, {}


def create_parser(parser_creator=None):
    parser = make_parser(
        parser_creator=parser_creator,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train a reinforcement learning agent.",
        epilog="python train.py -f rl_setups/ppo.yaml",
    )
    parser.add_argument("--ray-num-cpus", default=None, type=int)
    parser.add_argument("--experiment-name", default="default", type=str)
    parser.add_argument("--local-dir", default=DEFAULT_RESULTS_DIR, type=str)
    parser.add_argument("--upload-dir", default="", type=str)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--env", default=None, type=str)
    parser.add_argument("-f", "--config-file", default=None, type=str)
    return parser


def run(args, parser):
    if args.config_file:
        with open(args.config_file) as f:
            experiments = yaml.safe_load(f)
    else:
        experiments = {
            args.experiment_name: {
                "run": args.run,
                "checkpoint_freq": args.checkpoint_freq,
                "checkpoint_at_end": args.checkpoint_at_end,
                "keep_checkpoints_num": args.keep_checkpoints_num,
                "checkpoint_score_attr": args.checkpoint_score_attr,
                "local_dir": args.local_dir,
                "resources_per_trial": args.resources_per_trial and resources_to_json(args.resources_per_trial),
                "stop": args.stop,
                "config": dict(args.config, env=args.env),
                "restore": args.restore,
                "num_samples": args.num_samples,
                "sync_config": {"upload_dir": args.upload_dir or None},
            }
        }
    for exp in experiments.values():
        if not exp.get("run"):
            parser.error("the following arguments are required: --run")
        if not exp.get("env") and not exp.get("config", {}).get("env"):
            parser.error("the following arguments are required: --env")
        if args.torch:
            exp["config"]["framework"] = "torch"
    ray.init(num_cpus=args.ray_num_cpus, ignore_reinit_error=True)
    return run_experiments(
        experiments,
        scheduler=create_scheduler(args.scheduler, **args.scheduler_config),
        resume=args.resume,
        verbose=1,
        concurrent=True,
    )


def main():
    register_env("market", MarketOrders)
    config = '{"num_workers": 0, "lr": 0.01, "train_batch_size": 100, "rollout_fragment_length": 50}'
    parser = create_parser()
    flags = ["--run", "PG", "--env", "market", "--stop", '{"training_iteration": 2}', "--config", config, "--torch"]
    flags += ["--local-dir", "results", "--experiment-name", "orders", "--checkpoint-freq", "1", "--ray-num-cpus", "2"]
    (trial,) = run(parser.parse_args(flags), parser)
    assert trial.last_result["training_iteration"] == 2

    Path("ppo.yaml").write_text(
        "orders-ppo:\n  run: PPO\n  env: market\n  local_dir: results\n  stop: {training_iteration: 1}\n"
        "  config: {num_workers: 0, framework: torch, train_batch_size: 100, rollout_fragment_length: 50,\n"
        "           sgd_minibatch_size: 50, num_sgd_iter: 1, env_config: {length: 10}}\n"
    )
    (trial,) = run(parser.parse_args(["-f", "ppo.yaml", "--scheduler", "AsyncHyperBand", "--scheduler-config",
                                      '{"metric": "episode_reward_mean", "mode": "max"}']), parser)  # fmt: skip
    assert trial.last_result["episode_len_mean"] == 10

    analysis = tune.Analysis("results/orders")
    logdir = analysis.get_best_logdir(metric="episode_reward_mean", mode="max")
    assert analysis.get_best_config(metric="episode_reward_mean", mode="max")["lr"] == 0.01
    assert analysis.dataframe().logdir[0] == logdir
    assert len(analysis.trial_dataframes[logdir]) == 2
    assert "checkpoint_" in analysis.get_best_checkpoint(logdir, "training_iteration", "max")
    ray.shutdown()
    print("ok program_order_book_script")


if __name__ == "__main__":
    main()
