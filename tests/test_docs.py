"""README and docs: blocks of code run or are parsed, links exist, and every page is in the navigation.

The language of a block says what is done with it: `python` and `shell` blocks run, in the order of the page; `py` and
`bash` blocks need data, a GPU or time, so they are only parsed. A network that finds no motion replaces all others.
"""

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import typer.main

import gocor.models.weights
from gocor import cli
from gocor.models import create_model

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "py", "shell", "bash", "text", "toml", "json", "bibtex", "math", "yaml"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page, *languages):
    """Line number and text of the blocks of a page in these languages."""
    text = page.read_text(encoding="utf-8")
    found = [(text[: block.start()].count("\n") + 1, block[1], block[2]) for block in BLOCK.finditer(text)]
    return [(line, content) for line, language, content in found if language in languages]


def anchors(page):
    """The anchors of a page's headings, as code hosts and the site name them."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def commands(block):
    """The command lines of a block as lists of words, without comments, prompts and environment variables."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words:
            yield words


def parse(words):
    """Parse a command line as the program itself would; raises an error if an option or a name is wrong."""
    if words[0] == "gocor":
        parse_gocor(words[1:])
    elif "gocor.cli import main" in " ".join(words[:3]):  # python -c "import mine; from gocor.cli import main; main()"
        parse_gocor(words[3:])
    elif "-m" in words and words[words.index("-m") + 1] == "gocor":
        parse_gocor(words[words.index("-m") + 2 :])
    elif "-m" in words and words[words.index("-m") + 1].startswith(("benchmarks.", "gocor.")):
        module = words[words.index("-m") + 1].replace(".", "/")
        assert any((ROOT / folder / f"{module}.py").is_file() for folder in ("", "src")), module
    elif words[0].endswith("python"):
        assert words[1] == "-m" or (ROOT / words[1]).is_file(), words[1]
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), words[1]
    elif words[:2] == ["pip", "install"]:
        known = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.M))
        for extras in re.findall(r"(?:gocor|\.)\[([\w,]+)\]", " ".join(words)):
            assert set(extras.split(",")) <= known, extras
    else:
        assert words[0].rpartition("/")[2] in ("pip", "git", "cd", "pytest", "pre-commit", "gocor"), words[0]
        if words[0].endswith("/gocor"):
            parse_gocor(words[1:])


def parse_gocor(words):
    command = typer.main.get_command(cli.app)
    while words and words[0].startswith("--") and hasattr(command, "commands"):
        assert any(words[0] in parameter.opts for parameter in command.params), words[0]
        words = words[1:]
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, words[0]
        command, words = command.commands[words[0]], words[1:]
    command.make_context("gocor", list(words))


def test_the_parser_finds_wrong_options():
    parse(["gocor", "--verbose", "match", "a.jpg", "b.jpg", "-o", "out"])
    for wrong in (
        "gocor match a.jpg b.jpg",
        "gocor nothing",
        "gocor eval dev --root x --modell y -o out",
        "make nothing",
    ):
        with pytest.raises(Exception):  # noqa: B017, PT011
            parse(wrong.split())


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of, and a network that answers at once under the names of all."""
    generator = np.random.default_rng(0)
    picture = cv2.resize(generator.integers(0, 255, (12, 16, 3), np.uint8), (128, 96), interpolation=cv2.INTER_CUBIC)
    for file in ("a.jpg", "b.jpg", "references/1.jpg", "queries/1.jpg"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        cv2.imwrite(str(tmp_path / file), picture)
    (tmp_path / "pairs.csv").write_text("reference,query\na.jpg,b.jpg\n")
    monkeypatch.chdir(tmp_path)

    def load_model(name, weights="default", **_):
        network = create_model("basenet-gocor-tiny")
        network.forward = lambda reference, query, **_: torch.zeros_like(reference[:, :2])  # the images are the same
        return network

    for module in ("gocor.models.weights", "gocor.matching.api", "gocor.models", "gocor"):
        monkeypatch.setattr(import_module(module), "load_model", load_model)
    return tmp_path


def test_every_block_has_a_known_language():
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            assert block[1] in LANGUAGES, f"{name_of(page)}: a block of language {block[1]!r}"


def test_blocks_that_are_not_run_are_parsed():
    for page in PAGES:
        for line, block in blocks(page, "py"):
            ast.parse(block, f"{name_of(page)}:{line}")
        for line, block in blocks(page, "bash", "shell"):
            for words in commands(block):
                try:
                    parse(words)
                except Exception as error:
                    raise AssertionError(f"{name_of(page)}:{line}: {shlex.join(words)}: {error}") from error


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name_of)
def test_python_blocks_run(page, sandbox):
    content = [f"# {line}\n{block}" for line, block in blocks(page, "python")]
    before = set(gocor.models.registry.REGISTRY)
    from gocor.data.datasets import DATASETS
    from gocor.evaluation.benchmarks import ENTRIES

    (sandbox / "page.py").write_text("\n".join(content), encoding="utf-8")
    try:
        runpy.run_path(str(sandbox / "page.py"), init_globals=None)
    finally:
        for name in set(gocor.models.registry.REGISTRY) - before:
            del gocor.models.registry.REGISTRY[name]
        DATASETS.pop("mydata", None)
        ENTRIES.pop("mydata", None)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "shell")], ids=name_of)
def test_shell_blocks_run(page, sandbox, monkeypatch, capfd):
    for line, block in blocks(page, "shell"):
        for words in commands(block):
            assert words[0] == "gocor", f"{name_of(page)}:{line}: only gocor is run, mark the block as bash"
            monkeypatch.setattr(sys, "argv", words)
            with pytest.raises(SystemExit) as end:
                cli.main()
            assert end.value.code == 0, f"{name_of(page)}:{line}: {shlex.join(words)}\n{capfd.readouterr().err}"
            shutil.rmtree(sandbox / "out", ignore_errors=True)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_exist(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for path, anchor in LINK.findall(text):
        # The site makes these pages from files of the repository.
        if page.parent == ROOT / "docs" and path in ("contributing.md", "changelog.md", "reference/cli.md"):
            continue
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    written = {str(page.relative_to(ROOT / "docs").as_posix()) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert written <= listed, f"add to nav of mkdocs.yml: {written - listed}"
    assert listed - written == {"contributing.md", "changelog.md", "reference/cli.md"}


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    method = (tmp_path / "site" / "method.html").read_text(encoding="utf-8")
    assert method.count("<math ") >= 12
    assert "data-latex" not in method
    assert "https://github.com/gocor/gocor/blob/main/src/gocor/ops/select.py" in method
    missing = (tmp_path / "site" / "404.html").read_text(encoding="utf-8")
    loaded = re.findall(r"""<(?:link|script)[^>]*?(?:href|src)=["']?([^"'\s>]+)""", missing)
    assert any("iframe-worker" in path for path in loaded)
    assert [path for path in loaded if not path.startswith("/gocor/")] == []  # it is shown at any address of the site
