"""Pages that stand beside the code are part of the site: the algorithms', included; links to them lead there."""

import re
from pathlib import Path

from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[2]
_PAGE = (
    "```{{include}} ../../rlframe/agents/{name}/README.md\n:relative-docs: ..\n```\n\n"
    "```{{generated}} keys_of_page {name}\nMade when the site is built, from the declarations.\n```\n"
)
#: Pages of the repository by what the site calls them.
_OTHERS = {
    "README": "index",
    "CONTRIBUTING": "adding_an_algorithm",
    "CHANGELOG": "changelog",
    "benchmarks/README": "benchmarks",
    "rlframe/exploration/README": "intrinsic_rewards",
}


def write_algorithm_pages(app: Sphinx) -> None:
    """Writes a page for each algorithm's folder that has one, which includes it, and has a table of keys behind it."""
    folder = Path(app.srcdir) / "algorithms"
    wanted = {page.parent.name: page for page in sorted(ROOT.glob("rlframe/agents/*/README.md"))}
    for old in folder.glob("*.md"):
        if old.stem not in {*wanted, "index"}:
            old.unlink()
    for name in wanted:
        page, text = folder / f"{name}.md", _PAGE.format(name=name)
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def docname_of(page: Path) -> str | None:
    """Returns what the site calls a page of the repository, given without its suffix; None if it is not on it."""
    path = page.resolve().relative_to(ROOT).as_posix()
    algorithm = re.fullmatch(r"rlframe/agents/(\w+)/README", path)
    return f"algorithms/{algorithm[1]}" if algorithm else _OTHERS.get(path)


class LinksToPagesOutside(SphinxTransform):
    """Leads links to pages that stand outside of `docs` to those of the site."""

    default_priority = 200

    def apply(self, **kwargs: object) -> None:
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node.get("refdomain") == "doc" and node["reftarget"] not in self.env.found_docs:
                docname = docname_of(Path(self.env.srcdir) / node["reftarget"])
                if docname is not None:
                    node["reftarget"] = docname


def write_llms_txt(app: Sphinx, error: Exception | None) -> None:
    """Writes the index for programs that read: each page with its title, below what the index says of it."""
    if error is not None or app.builder.format != "html":
        return
    index = (Path(app.srcdir) / "index.md").read_text(encoding="utf-8").split("```{toctree}")[0]
    lines = re.sub(r"!\[.*\n", "", index)
    lines = re.sub(r"\]\(([\w/]+)\.md", r"](\1.html", lines)
    titles = (f"- [{title.astext()}]({name}.html)" for name, title in sorted(app.env.titles.items()))
    text = f"{lines.strip()}\n\n## All pages\n\n" + "\n".join(titles) + "\n"
    (Path(app.outdir) / "llms.txt").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_algorithm_pages)
    app.connect("build-finished", write_llms_txt)
    app.add_transform(LinksToPagesOutside)
    return {"parallel_read_safe": True}
