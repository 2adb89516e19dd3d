"""TD3: DDPG with two critics, delayed actor updates and noise on target actions; config and trainer."""

from __future__ import annotations

from typing import Any

from rlframe.agents.ddpg.ddpg import DDPGConfig, DDPGTrainer


class TD3Config(DDPGConfig):
    """Keys of TD3: DDPG's, with the settings of Fujimoto et al. 2018."""

    new_defaults = {  # noqa: RUF012
        "twin_q": True,
        "policy_delay": 2,
        "smooth_target_policy": True,
        "exploration_config": {
            "type": "GaussianNoise", "random_timesteps": 10_000, "stddev": 0.1, "initial_scale": 1.0,
            "final_scale": 1.0, "scale_timesteps": 1,
        },
        "learning_starts": 10_000,
        "train_batch_size": 100,
        "replay_buffer_config": {"capacity": 1_000_000},
        "prioritized_replay": False,
        "tau": 5e-3,
        "l2_reg": 0.0,
        "clip_rewards": False,
    }  # fmt: skip


TD3_DEFAULT_CONFIG: dict[str, Any] = TD3Config.defaults()

TD3Trainer = DDPGTrainer.with_updates(name="TD3", config_class=TD3Config)
