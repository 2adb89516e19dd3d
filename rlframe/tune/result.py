"""`ray.tune.result` of Ray 1.x: the keys of results, and where results go by default."""

import os
from typing import Final

from ray.tune.result import *  # noqa: F403 (its whole surface)

DEFAULT_RESULTS_DIR: Final = os.path.expanduser(os.environ.get("TUNE_RESULT_DIR", "~/ray_results"))
"""Where results go without `local_dir`."""
