"""RLlib's older path of `rlframe.env.wrappers.atari_wrappers`."""

from rlframe.env.wrappers.atari_wrappers import (
    ClipRewardEnv,
    EpisodicLifeEnv,
    FireResetEnv,
    FrameStack,
    MaxAndSkipEnv,
    MonitorEnv,
    NoopResetEnv,
    WarpFrame,
    get_wrapper_by_cls,
    is_atari,
    wrap_deepmind,
)

__all__ = [
    "ClipRewardEnv",
    "EpisodicLifeEnv",
    "FireResetEnv",
    "FrameStack",
    "MaxAndSkipEnv",
    "MonitorEnv",
    "NoopResetEnv",
    "WarpFrame",
    "get_wrapper_by_cls",
    "is_atari",
    "wrap_deepmind",
]
