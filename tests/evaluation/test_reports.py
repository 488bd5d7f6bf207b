"""Tables, files and plots of results."""

import io
import json

import cv2
import numpy as np
import pytest

from gocor.evaluation import BASELINES, evaluate_all, open_benchmark
from gocor.evaluation.plots import draw_aepe, draw_curves, draw_intervals
from gocor.evaluation.reports import cell, header, terminal_tables, to_markdown, write_report

from ..data.datasets.samples import write_sample


def results_of(name, root, matchers=("identity", "dis")):
    benchmarks = open_benchmark(name, write_sample({"eth3d": "eth3d"}.get(name, name), root))
    return {matcher: evaluate_all(BASELINES[matcher], benchmarks) for matcher in matchers}


@pytest.fixture
def results(tmp_path):
    return results_of("sintel", tmp_path / "data")


def printed(tables, width):
    from rich.console import Console

    console = Console(width=width, file=io.StringIO())
    for table in tables:
        console.print(table)
    return console.file.getvalue()


def test_cells(results):
    evaluation = results["identity"]["sintel-clean"]
    assert header(evaluation.protocol) == "AEPE / PCK-1 / PCK-5"
    assert cell(evaluation) == "5.83 / 0.0 / 0.0"
    assert cell(None) == "–"


def test_terminal_tables_fit_their_width(results):
    wide = terminal_tables(results, 200)
    assert len(wide) == 1
    text = printed(wide, 200)
    assert "sintel-clean" in text
    assert "5.83 / 0.0 / 0.0" in text
    narrow = terminal_tables(results, 50)
    assert len(narrow) == 2
    text = printed(narrow, 50)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 50


def test_markdown_holds_regions_and_groups(results, tmp_path):
    text = to_markdown(results, title="a title", command="gocor eval")
    assert "| identity | 5.83 / 0.0 / 0.0 | 5.83 / 0.0 / 0.0 |" in text
    assert "| matcher | all | matched | unmatched | d0-10 | d10-60 | s0-10 |" in text
    assert "gocor eval" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")
    text = to_markdown(results_of("tss", tmp_path / "tss"), title="t")
    assert "| matcher | FG3DCar | JODS | PASCAL |" in text


def test_markdown_holds_areas_under_curves(tmp_path):
    benchmarks = open_benchmark("hpatches", write_sample("hpatches", tmp_path), geometry=True, limit=2)
    results = {"dis": evaluate_all(BASELINES["dis"], benchmarks)}
    assert "| matcher | @3px | @5px | @10px |" in to_markdown(results, title="t")
    assert "homography AUC at 3 / 5 / 10 px" in printed(terminal_tables(results, 200), 200)


def test_files_are_whole_and_reproducible(results, tmp_path):
    first = {path.name: path.read_bytes() for path in write_report(results, tmp_path / "a", title="t")}
    second = {path.name: path.read_bytes() for path in write_report(results, tmp_path / "b", title="t")}
    assert first == second
    assert set(first) == {"results.json", "results.md", "pck.png", "aepe.png"}
    content = json.loads(first["results.json"])
    figures = content["matchers"]["identity"]["sintel-final"]
    assert figures["metrics"]["aepe"] == pytest.approx(np.hypot(5, 3))
    assert [pair["name"] for pair in figures["per_pair"]] == ["cave_0001", "cave_0002"]
    assert figures["per_pair"][0]["pck-10"] == 1


def picture(data):
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert image.std() > 5  # something is drawn
    return image


def test_plots(results):
    assert picture(draw_curves(results)).shape[1] > 250
    picture(draw_aepe(results))
    assert draw_intervals(results) is None


def test_accuracy_over_the_interval(tmp_path):
    results = results_of("eth3d", tmp_path, ("identity",))
    errors = [evaluation.metrics["aepe"] for evaluation in results["identity"].values()]
    assert errors == sorted(errors)
    image = picture(draw_intervals(results))
    assert image.shape[1] > 2 * image.shape[0]
