"""The site: Sphinx with MyST and furo. `make site` builds it with every warning an error."""

import logging
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_tools")]

from rlframe.version import __version__ as release  # noqa: E402

project = "rlframe"
copyright = "the authors of rlframe, Apache-2.0"
extensions = ["myst_nb", "sphinxcontrib.mermaid", "pages_outside", "generated"]
exclude_patterns = ["_build", "_tools"]

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

# The gallery's pages are notebooks, run when the site is built; a cell that raises an error fails the build.
nb_execution_mode = "auto"
nb_execution_raise_on_error = True
nb_execution_timeout = 300  # seconds per cell, on a busy machine; alone a page takes less than a minute
nb_execution_show_tb = True
logging.getLogger("traitlets").setLevel(logging.WARNING)  # which says of each notebook that it begins

html_theme = "furo"
html_title = f"rlframe {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
