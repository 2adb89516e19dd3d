"""The site: Sphinx with MyST and furo. `make site` builds it with every warning an error."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_tools")]

from rlframe.version import __version__ as release  # noqa: E402

project = "rlframe"
copyright = "the authors of rlframe, Apache-2.0"
extensions = ["myst_parser", "sphinxcontrib.mermaid", "pages_outside", "generated"]
exclude_patterns = ["_build", "_tools"]

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

html_theme = "furo"
html_title = f"rlframe {release}"
html_static_path = ["_static"]
