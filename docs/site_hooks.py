"""Hooks of the documentation site: pages from other folders, links out of docs/, equations, and the help of commands.

Pages keep links that work on a code host, such as `../src/gocor/ops/select.py`. Here they become links to the same
page of the site, or to the repository. Equations are `math` blocks and `` $`…`$ ``, which code hosts show too. Here
they become MathML, which browsers draw without a script.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/gocor/gocor"
WEIGHTS = "src/gocor/weights/"

FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(?=\))")
MATH_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)
MATH = re.compile(r"\$`([^`]+)`\$")


def pages() -> dict[str, str]:
    """Files of the repository, outside docs/, that are pages of the site: path → name of the page."""
    cards = {f"{WEIGHTS}{path.name}": f"models/{path.name}" for path in sorted((ROOT / WEIGHTS).glob("*.md"))}
    cards.pop(f"{WEIGHTS}README.md")
    return {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", **cards}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are written elsewhere, and those that are generated."""
    for source, page in pages().items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference/cli.md", content=command_line()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links and equations of a page."""
    name = page.file.src_uri
    sources = {target: source for source, target in pages().items()}
    source = sources.get(name, f"docs/{name}")
    if name == "models.md":
        markdown = markdown.replace("<!-- table of weights -->", weights_table())
    markdown = MATH_BLOCK.sub(lambda found: convert(found[1].strip(), display="block"), markdown)
    parts, end = [], 0
    for fence in [*FENCE.finditer(markdown), None]:
        text = markdown[end : fence.start() if fence else None]
        text = LINK.sub(lambda found: target_of(found[1], source, name) + (found[2] or ""), text)
        parts.append(MATH.sub(lambda found: convert(found[1]), text))
        if fence:
            parts.append(fence[0])
            end = fence.end()
    return "".join(parts)


def target_of(link: str, source: str, page: str) -> str:
    """The link of a page of the site that stands for a link in a file of the repository.

    Args:
        link: relative to the file.
        source: path of the file in the repository.
        page: name of the page that shows the file.
    """
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    here = posixpath.dirname(page)
    if path == f"{WEIGHTS}README.md":
        return posixpath.relpath("models.md", here or ".")
    if path in pages():
        return posixpath.relpath(pages()[path], here or ".")
    if path.startswith("docs/"):
        return posixpath.relpath(path.removeprefix("docs/"), here or ".")
    if not (ROOT / path).exists():
        raise PluginError(f"{source} links to {link}, but there is no {path}")
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{path}"


def weights_table() -> str:
    """The table of the weights that ship, as `python -m gocor.models.cards` wrote it, with links as seen from docs/."""
    text = (ROOT / WEIGHTS / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return "\n".join(rows).replace("](", f"](../{WEIGHTS}")


def command_line() -> str:
    """A page with the help of every command."""
    import typer.main

    from gocor.cli import app

    parts = ["# Command line", "`gocor COMMAND --help` prints the same text."]

    def add(command: Any, path: list[str], parent: Any) -> None:
        context = command.make_context(path[-1], [], parent=parent, resilient_parsing=True, max_content_width=100)
        context.terminal_width = 100
        parts.extend([f"## {' '.join(path)}", f"```text\n{command.get_help(context).rstrip()}\n```"])
        for name, child in getattr(command, "commands", {}).items():
            add(child, [*path, name], context)

    add(typer.main.get_command(app), ["gocor"], None)
    return "\n\n".join(parts) + "\n"
