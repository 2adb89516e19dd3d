"""How many env steps the tuned presets take to their target, for the numbers in rlframe/agents/presets.yaml.

python benchmarks/presets.py [--only PPO] [--seeds 3]
"""

import argparse
import time

from rlframe.agents.presets import Preset, presets
from rlframe.agents.registry import get_trainer_class

#: Env steps after which a run has failed.
BUDGET = 500_000


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
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for preset in presets():
        if arguments.only in (None, preset.algorithm):
            for seed in range(arguments.seeds):
                print(preset.algorithm, preset.env, f"seed {seed}:", steps_to_target(preset, seed), flush=True)


if __name__ == "__main__":
    main()
