"""A trainer that counts instead of learning, and checks how it is called."""

import json
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from rlframe.config.common import CommonConfig
from rlframe.config.merge import merge_configs
from rlframe.utils.errors import CheckpointError, EnvError


class CountingTrainer:
    """Returns climb by 10 with each iteration of 100 steps; the first has no finished episode."""

    _config_class = CommonConfig
    #: What is done before the result of an iteration, by iteration.
    on_iteration: ClassVar[dict[int, Callable[[], None]]] = {}

    def __init__(self, config: dict[str, Any], env: str, logger_creator: Callable[[Any], Any]) -> None:
        self.config = self.merge_trainer_configs(self.get_default_config(), {**config, "env": env})
        self.logger = logger_creator(self.config)
        self.iteration = 0
        self.stopped = False

    @classmethod
    def get_default_config(cls) -> dict[str, Any]:
        return {**CommonConfig.defaults(), "my_own_key": 1}

    @classmethod
    def merge_trainer_configs(cls, defaults: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
        return merge_configs(defaults, config, CommonConfig)

    def train(self) -> dict[str, Any]:
        assert not self.stopped
        self.iteration += 1
        self.on_iteration.get(self.iteration, lambda: None)()
        mean = self.mean_return()
        result = {
            "training_iteration": self.iteration,
            "timesteps_total": 100 * self.iteration,
            "time_this_iter_s": 0.5,
            "time_total_s": 0.5 * self.iteration,
            "episode_reward_mean": mean,
            "episode_reward_min": mean,
            "episode_reward_max": mean,
            "episode_len_mean": mean,
            "info": {"num_steps_trained": 200 * 20 * self.iteration},
        }
        self.logger.on_result(result)
        return result

    def mean_return(self) -> float:
        return math.nan if self.iteration == 1 else 10.0 * self.iteration

    def save(self, directory: str) -> str:
        path = Path(directory, f"checkpoint_{self.iteration:06d}")
        path.mkdir(exist_ok=True)
        (path / "state.json").write_text(json.dumps({"iteration": self.iteration}))
        return str(path)

    def restore(self, path: str) -> None:
        try:
            self.iteration = json.loads(Path(path, "state.json").read_text())["iteration"]
        except ValueError as error:
            raise CheckpointError(f"{path} is damaged") from error

    def stop(self) -> None:
        self.stopped = True
        self.logger.close()


class PlateauTrainer(CountingTrainer):
    """Returns climb up to the third iteration, and stay there."""

    def mean_return(self) -> float:
        return 10.0 * min(self.iteration, 3)


class SlowTrainer(CountingTrainer):
    """Takes a moment for each iteration, so that it can be killed in the middle of a run."""

    def train(self) -> dict[str, Any]:
        time.sleep(0.1)
        return super().train()


class FailingTrainer(CountingTrainer):
    """Finds its environment broken."""

    def train(self) -> dict[str, Any]:
        raise EnvError("the valve is stuck")


def send(signum: signal.Signals) -> Callable[[], None]:
    """Returns a function that sends this process a signal."""
    return lambda: os.kill(os.getpid(), signum)
