"""Draws `live_view.svg`: what `rlframe train` shows in the middle of a run, taken from a run.

python docs/_tools/draw_live_view.py
"""

import io
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from rlframe.cli import live
from rlframe.cli.main import main

COMMAND = "rlframe train DQN --env CartPole-v1 --preset --stop-reward 195 --run-dir runs/dqn"
ITERATIONS = 15
PICTURE = Path(__file__).parents[1] / "_static" / "live_view.svg"


class Drawn(live.LiveView):
    """The live view, which keeps a picture of itself."""

    def update(self, row, result):
        super().update(row, result)
        if row.iteration == ITERATIONS:
            page = Console(record=True, force_terminal=True, width=96, file=io.StringIO())
            page.print(f"$ {COMMAND}\n", highlight=False)
            page.print(self.render())
            page.save_svg(str(PICTURE), title="rlframe")


live.LiveView = Drawn
live.Console = lambda: Console(force_terminal=True)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    sys.argv = COMMAND.split()
    main()
