"""How many env steps the tuned presets take to their target, or what they return after their steps: the numbers in
rlframe/agents/presets.yaml.

python benchmarks/presets.py [--only PPO] [--env LunarLander-v3] [--seeds 3]
"""

import argparse
import time

from rlframe.agents.presets import Preset, presets
from rlframe.agents.registry import get_trainer_class

#: Env steps after which a run has failed.
BUDGET = 500_000


def return_after(preset: Preset, seed: int) -> str:
    evaluation = {"evaluation_config": {"explore": False}, "evaluation_num_episodes": 100}
    trainer = get_trainer_class(preset.algorithm)({**preset.config, **evaluation, "seed": seed}, env=preset.env)
    started = time.perf_counter()
    try:
        while (steps := trainer.train()["timesteps_total"]) < preset.env_steps[0]:
            pass
        seconds = time.perf_counter() - started
        mean = trainer.evaluate()["evaluation"]["episode_reward_mean"]
        return f"mean return {mean:.1f} after {steps:,} ({seconds:.0f} s)"
    finally:
        trainer.stop()


def steps_to_target(preset: Preset, seed: int) -> str:
    trainer = get_trainer_class(preset.algorithm)({**preset.config, "seed": seed}, env=preset.env)
    started = time.perf_counter()
    try:
        while True:
            result = trainer.train()
            if result["episode_reward_mean"] >= preset.target:
                return f"{result['timesteps_total']:,} ({time.perf_counter() - started:.0f} s)"
            if result["timesteps_total"] >= BUDGET:
                return f"not in {BUDGET:,}, mean {result['episode_reward_mean']:.0f}"
    finally:
        trainer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one algorithm")
    parser.add_argument("--env", help="one environment")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for preset in presets():
        if arguments.only in (None, preset.algorithm) and arguments.env in (None, preset.env):
            for seed in range(arguments.seeds):
                measured = return_after(preset, seed) if preset.returns else steps_to_target(preset, seed)
                print(preset.algorithm, preset.env, f"seed {seed}:", measured, flush=True)


if __name__ == "__main__":
    main()
