"""The directive `generated`: what the code knows, as a part of a page."""

from docutils import nodes
from site_text import GENERATED
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Generated(SphinxDirective):
    """Puts what `site_text` makes in the directive's place, and in that of what it says to those who read the file."""

    required_arguments = 1
    optional_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name, *arguments = self.arguments
        if name not in GENERATED:
            raise self.error(f"generated: got {name!r}, wanted one of {', '.join(GENERATED)}")
        return self.parse_text_to_nodes(GENERATED[name](*arguments), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True}
