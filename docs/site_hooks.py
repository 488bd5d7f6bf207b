"""Hooks of the documentation site: pages from other folders, links out of docs/, equations, and the help of commands.

Pages keep links that work on a code host, such as `../src/gocor/ops/select.py`. Here they become links to the same
page of the site, or to the repository. Equations are `math` blocks and `` $`…`$ ``, which code hosts show too. Here
they become MathML, which browsers draw without a script.
"""

import posixpath
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/gocor/gocor"
WEIGHTS = "src/gocor/weights/"

SHIM = "https://unpkg.com/iframe-worker/shim"  # which the theme loads for the search, and docs/assets holds (MIT)
LOCAL_SHIM = "assets/iframe-worker/shim.js"
LOADED = re.compile(
    r'<(?:script|img|iframe)[^>]+src="?https?:[^>]*>|<link[^>]+rel="?(?:stylesheet|preconnect)[^>]+https?:[^>]*>'
)

FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(?=\))")
MATH_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)
MATH = re.compile(r"\$`([^`]+)`\$")
EQUATION = re.compile(r'<(?:div|span) data-math="(\w+)" data-latex="(\w+)"></(?:div|span)>')


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
    markdown = MATH_BLOCK.sub(lambda found: _placeholder(found[1], "block"), markdown)
    parts, end = [], 0
    for fence in [*FENCE.finditer(markdown), None]:
        text = markdown[end : fence.start() if fence else None]
        text = LINK.sub(lambda found: target_of(found[1], source, name) + (found[2] or ""), text)
        parts.append(MATH.sub(lambda found: _placeholder(found[1], "inline"), text))
        if fence:
            parts.append(fence[0])
            end = fence.end()
    return "".join(parts)


def on_page_content(html: str, **_: Any) -> str:
    """Put the equations in their places: Markdown would take inline MathML for a paragraph of its own."""
    return EQUATION.sub(lambda found: convert(bytes.fromhex(found[2]).decode(), display=found[1]), html)


def _placeholder(latex: str, display: str) -> str:
    tag = "div" if display == "block" else "span"
    return f'<{tag} data-math="{display}" data-latex="{latex.strip().encode().hex()}"></{tag}>'


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load scripts from the site itself, and check that a page loads nothing from a network."""
    return _without_network(output, posixpath.relpath(LOCAL_SHIM, posixpath.dirname(page.url) or "."), page.url)


def on_post_template(output_content: str, template_name: str, config: Any, **_: Any) -> str:
    """The same for the page that says that a page is missing, which is shown at any address below the site's."""
    return _without_network(output_content, urlsplit(config.site_url).path + LOCAL_SHIM, template_name)


def _without_network(html: str, shim: str, name: str) -> str:
    html = html.replace(SHIM, shim)
    if found := LOADED.search(html):
        raise PluginError(f"{name} loads from a network: {found[0]}")
    return html


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
    """The table of the weights that ship, as `python -m gocor.models.cards` wrote it, without licence and data."""
    text = (ROOT / WEIGHTS / "README.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") if " | " in line else line.split("|") for line in text.splitlines() if line[:1] == "|"]
    narrow = [("|" if row[0] == "" else " | ").join(row[: 6 if row[0] == "" else 5]) + " |" for row in rows]
    return "\n".join(narrow).replace(".safetensors`](", f"`](../{WEIGHTS}")


def command_line() -> str:
    """A page with the help of every command."""
    import typer.main

    from gocor.cli import app

    parts = ["# Command line", "`gocor COMMAND --help` prints the same text."]

    def add(command: Any, path: list[str], parent: Any) -> None:
        context = command.make_context(path[-1], [], parent=parent, resilient_parsing=True)
        context.terminal_width = context.max_content_width = 84
        parts.extend([f"## {' '.join(path)}", f"```text\n{command.get_help(context).rstrip()}\n```"])
        for name, child in getattr(command, "commands", {}).items():
            add(child, [*path, name], context)

    add(typer.main.get_command(app), ["gocor"], None)
    return "\n\n".join(parts) + "\n"
