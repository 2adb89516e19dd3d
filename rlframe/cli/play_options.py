"""How episodes are played, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PlayOptions:
    """How episodes are played.

    Attributes:
        seed: Episode i is reset with a seed derived from this and i; None takes fresh ones. What the policy draws
            while it explores goes by the checkpoint.
        explore: Whether actions are drawn as in training, not chosen greedily.
        render: Whether the environment shows itself.
        max_steps: Env steps after which an episode is cut; None takes the config's `horizon`.
        video_dir: Where each episode becomes an MP4 file; None records none.
        frame_dir: Where frames become PNG files; None keeps none.
        frame_frequency: Env steps from one kept frame to the next.
        frame_delay_s: Seconds to wait after each step, for those who watch.
    """

    seed: int | None = None
    explore: bool = False
    render: bool = False
    max_steps: int | None = None
    video_dir: Path | None = None
    frame_dir: Path | None = None
    frame_frequency: int = 1
    frame_delay_s: float = 0.0

    @property
    def render_mode(self) -> str | None:
        """Returns what the environment is asked to draw; None for nothing."""
        if self.video_dir is not None or self.frame_dir is not None:
            return "rgb_array"
        return "human" if self.render else None
