"""The paper's studies: definitions, training of what is missing, tables with the paper's numbers, plots."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gocor.data.datasets import PairDataset
from gocor.evaluation import open_benchmark
from gocor.evaluation.benchmarks import Benchmark
from gocor.models.registry import create_model, sketch
from gocor.models.weights import read_state
from gocor.models.zoo import SHIPPED
from gocor.modules import GlobalGOCor, LocalGOCor
from gocor.modules.gocor import GOCor
from gocor.studies import STUDIES, StudyRun, run_study, write_study
from gocor.studies import run as run_module
from gocor.studies.data import synthetic_benchmark
from gocor.studies.learnt import Learnt, learnt_values
from gocor.studies.paper import paper_tables, to_markdown
from gocor.studies.report import table_of
from gocor.training import train
from gocor.training.config import merge_options, typed_options
from gocor.training.run import FINAL
from gocor.training.sources import open_sources

from ..cli.test_cli import runner
from ..data.datasets.samples import write_sample

pytestmark = pytest.mark.long

PHOTOS = str(SHIPPED.with_name("assets"))
TINY = {"network": {"width": 0.125, "local.radius": 2}, "size": 64, "batch": 1, "steps": 1, "validation_pairs": 1}
TRAINING = merge_options(typed_options(TINY), typed_options({"data": [PHOTOS], "preset": "static"}))


@pytest.fixture(scope="module")
def benchmarks():
    return {"synthetic": synthetic_benchmark([PHOTOS], count=1, size=(64, 96))}


def part(name, *labels):
    """A study with a few of its variants."""
    study = STUDIES[name]
    return replace(study, variants=tuple(variant for variant in study.variants if variant.label in labels))


def test_every_variant_can_be_built_and_stands_in_the_papers_table():
    for study in STUDIES.values():
        for variant in study.variants:
            sketch(variant.model, variant.network)
        if study.table is not None:
            labels = {variant.label for variant in study.variants}
            assert set(paper_tables()[study.table].rows) <= labels


def test_variants_name_only_what_differs_from_the_registered_network():
    """So that rows that need the same training run share it."""
    for variant in (variant for study in STUDIES.values() for variant in study.variants):
        layers = {"global": GlobalGOCor, "local": LocalGOCor}
        for name, value in variant.network.items():
            layer, _, option = name.partition(".")
            kind = layers[layer]
            registered = next(m.options for m in sketch(variant.model).modules() if isinstance(m, kind))
            own = registered.start_regularization if option == "regularization" else getattr(registered, option)
            assert value != own, variant


def test_studies_that_share_a_folder_train_common_variants_once(tmp_path):
    def runs(*names, **training):
        studies = [StudyRun(STUDIES[name], {}, tmp_path / name, training, runs=tmp_path / "runs") for name in names]
        return [run.run_folder(row, 0).name for run in studies for row in run.study.variants if row.trained]

    static = runs("ablation-static", "initializers", "training-iterations", "regularizer")
    assert (len(static), len(set(static))) == (23, 19)
    assert set(static) & set(runs("ablation")) == set()  # dynamic pairs
    assert set(runs("ablation", preset="static")) & set(static) >= {"basenet-static-seed-0"}
    glunet = runs("eta", "training-data", "iterations")
    assert (len(set(runs("iterations"))), len(set(glunet))) == (1, 7)
    regularizer = STUDIES["regularizer"].with_model("glunet-gocor")
    assert {variant.model for variant in regularizer.variants} == {"glunet-gocor"}
    with pytest.raises(ValueError, match="regularizer cannot study 'pwcnet'; there are basenet-gocor, glunet-gocor"):
        STUDIES["regularizer"].with_model("pwcnet")
    with pytest.raises(ValueError, match="eta cannot study 'basenet'; its networks are fixed"):
        STUDIES["eta"].with_model("basenet")


def test_variants_differ_in_what_the_study_is_about():
    def layers(name, label):
        variant = part(name, label).variants[0]
        return [m.options for m in sketch(variant.model, variant.network).modules() if isinstance(m, GOCor)]

    assert layers("ablation-static", "IV, fusion of both directions")[0].bidirectional
    assert [options.iters for options in layers("training-iterations", "1 iteration")] == [1, 1]
    assert [options.eta for options in layers("eta", "η = 0.1")] == [0.1, 0.1]
    assert layers("initializers", "context")[0].initializer == "context"
    assert [options.query_objective for options in layers("ablation", "VI V and local, L_r + L_q")] == [True, True]


def test_a_study_trains_what_is_missing_evaluates_and_reports(tmp_path, benchmarks):
    study = part("training-iterations", "BaseNet", "0 iterations", "1 iteration")
    run = StudyRun(study, benchmarks, tmp_path, TRAINING, (0, 1), "cpu")
    assert run_study(run, quiet=True)
    assert len(list(tmp_path.glob("runs/*/final.safetensors"))) == 6
    first, second = (scores["synthetic"]["aepe"] for scores in run.scores["1 iteration"])
    assert first != second  # two seeds
    mean, spread = run.spread("1 iteration")["synthetic"]["aepe"]
    assert (mean, spread) == pytest.approx(((first + second) / 2, abs(first - second) / math.sqrt(2)))
    assert all(scores["synthetic"]["ms"] > 0 for runs in run.scores.values() for scores in runs)
    files = write_study(run, command="gocor study", notes=["A note."])
    assert [file.name for file in files] == ["study.md", "study.json", "study-synthetic.png"]
    assert "± " in files[0].read_text() and "A note." in files[0].read_text()  # noqa: PT018
    assert "paper's own numbers" not in files[0].read_text()  # of no data set here
    content = json.loads(files[1].read_text())
    assert content["variants"]["1 iteration"]["paper"]["hpatches.aepe"] == 21.91
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/final.safetensors")}
    again = StudyRun(study, benchmarks, tmp_path, TRAINING, (0, 1), "cpu")
    assert run_study(again, quiet=True)
    assert {path: path.stat().st_mtime_ns for path in times} == times  # nothing was trained again
    aepe = [[scores["synthetic"]["aepe"] for scores in one.scores["1 iteration"]] for one in (run, again)]
    assert aepe[0] == aepe[1]
    other = StudyRun(study, benchmarks, tmp_path, TRAINING | {"steps": 2}, (0,), "cpu")
    with pytest.raises(ValueError, match=r"was trained with other options \(steps\): give another folder"):
        run_study(other, quiet=True)


def test_runs_of_one_seed_share_their_pairs(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(run_module, "open_sources", lambda *a: opened.append(a[0].seed) or open_sources(*a))
    study = part("ablation-static", "I plain", "III global, L_r")
    run = StudyRun(study, {}, tmp_path, {**TRAINING, "steps": 2}, seeds=(0, 1), device="cpu")
    assert run_study(run, quiet=True)
    assert opened == [0, 1]
    last = study.variants[-1]
    alone = replace(run.config(last, 1), output=str(tmp_path / "alone"))
    train(alone, quiet=True)
    shared, own = (read_state(folder / FINAL)[0] for folder in (run.run_folder(last, 1), tmp_path / "alone"))
    assert all(torch.equal(value, own[name]) for name, value in shared.items())


def test_scores_of_other_pairs_of_the_same_name_are_not_used_again(tmp_path):
    study, scores = part("iterations", "0 local"), []
    for count in (1, 2):  # the first pair of two is not the only pair of one
        benchmark = synthetic_benchmark([PHOTOS], count=count, size=(64, 96))
        first = {"synthetic": Benchmark(benchmark.dataset[:1], benchmark.protocol)}
        weights = str(SHIPPED / "glunet-gocor.safetensors")
        options = {"weights": weights, "roots": {"synthetic": f"{count} pairs"}}
        run = StudyRun(study, first, tmp_path, TRAINING, device="cpu", match={"max_size": 64}, **options)
        assert run_study(run, quiet=True)
        scores.append(run.scores["0 local"][0]["synthetic"]["aepe"])
    assert scores[0] != scores[1]


def test_the_papers_value_stands_beside_ours(tmp_path):
    benchmarks = open_benchmark("kitti2012", write_sample("kitti2012", tmp_path / "data"))
    run = StudyRun(part("ablation-static", "I plain", "IV, fusion of both directions"), benchmarks, tmp_path)
    run.scores = {variant.label: [{"kitti2012": {"aepe": 2.0, "fl": 0.25}}] for variant in run.study.variants}
    head, rows = table_of(run)
    assert head[1:] == ["KITTI 2012, AEPE", "paper", "KITTI 2012, F1", "paper"]
    assert rows == [["I plain", "2.00", "4.95", "25.0", "42.49"], [rows[1][0], "2.00", "–", "25.0", "–"]]


def test_a_time_limit_holds_for_the_whole_study(tmp_path, benchmarks, monkeypatch):
    given, clock = [], iter(range(0, 10_000, 60))  # a minute passes whenever it is asked for

    def train(config, *, stop_after, **_):
        given.append(stop_after)
        Path(config.output).mkdir(parents=True)
        (Path(config.output) / "final.safetensors").write_bytes(b"")
        return SimpleNamespace(finished=True)

    monkeypatch.setattr(run_module, "train", train)
    monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    run = StudyRun(STUDIES["ablation"], benchmarks, tmp_path, TRAINING, (0,), "cpu")
    assert not run_study(run, stop_after=3.5)
    assert given == [2.5, 1.5, 0.5]


def test_learnt_values_stand_in_the_table(tmp_path, benchmarks):
    study = part("regularizer", "absolute, λ from 0.01", "relative, ρ from 0.25")
    run = StudyRun(study, benchmarks, tmp_path, TRAINING, (0, 1), "cpu", runs=tmp_path / "shared")
    assert run_study(run, quiet=True)
    assert len(list(tmp_path.glob("shared/*/final.safetensors"))) == 4
    head, rows = table_of(run)
    assert head[-4:] == ["global λ or ρ", "global v⁺(0)", "local λ or ρ", "local v⁺(0)"]
    assert [row[-4].partition(" ± ")[0] for row in rows] == ["0.01", "0.25"]
    run.learnt["absolute, λ from 0.01"][1]["local"] = Learnt(3e-6, 1e-5, 0.5)
    assert table_of(run)[1][0][-2].endswith(" †")
    assert "λ ended below its floor" in write_study(run)[0].read_text()
    learnt = json.loads((tmp_path / "study.json").read_text())["variants"]["relative, ρ from 0.25"]["learnt"]
    assert [layers["global"]["floor"] for layers in learnt] == [None, None]
    plain = learnt_values(create_model("basenet-gocor-tiny", {"global.reference_objective": "quadratic"}))
    assert plain["global"].weight is None


def test_run_time_is_measured_without_training_on_all_pairs(tmp_path, benchmarks, monkeypatch):
    timed = []
    monkeypatch.setattr(run_module, "compare", lambda calls, *_: timed.append(1) or dict.fromkeys(calls, 2.0))
    dataset, protocol = benchmarks["synthetic"]
    items = [dataset.items[0]._replace(name=str(number)) for number in range(10)]
    benchmarks = {"synthetic": Benchmark(PairDataset("synthetic", items), protocol)}
    study = part("run-time", "PWC-Net", "PWC-Net-GOCor, 3 local iterations")
    run = StudyRun(study, benchmarks, tmp_path, TRAINING, (0, 1, 2), "cpu")
    assert run_study(run)
    assert not (tmp_path / "runs").exists()
    assert run.scores == {variant.label: [{"synthetic": {"ms": 2.0}}] for variant in study.variants}
    assert len(timed) == 10
    assert run.matcher(study.variants[0], 0).keywords()["min_size"] == 0  # the paper enlarges no image


def test_weights_stand_for_one_run_alone(tmp_path, benchmarks):
    with pytest.raises(
        ValueError, match="ablation trains 7 variants: weights can replace the training of one variant only"
    ):
        run_study(StudyRun(STUDIES["ablation"], benchmarks, tmp_path, TRAINING, weights="default"))


def test_the_command(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(STUDIES, "ablation", part("ablation", "I plain", "VI V and local, L_r"))
    call = runner(monkeypatch, capfd)
    options = ("--quick", "--steps", "1", "--limit", "1", "--set", "validation_pairs=1", "--set", "batch=1")
    code, out, err = call("study", "ablation", *options, "--sheets", "1", "--device", "cpu", "-o", tmp_path / "out")
    assert code == 0, err
    assert "VI V and local, L_r" in out
    assert (tmp_path / "out" / "sheets" / "synthetic-000.png").is_file()
    assert "Quick: small networks with random features" in (tmp_path / "out" / "study.md").read_text()
    code, _, err = call("study", "ablatoin", "--quick", "-o", tmp_path / "out")
    assert (code, err) == (1, "gocor: no study is named 'ablatoin'; the nearest are ablation\n")
    twice = ("--eval", f"kitti2012={tmp_path}", "--eval", f"kitti2012={write_sample('kitti2012', tmp_path)}")
    code, _, err = call("study", "ablation", "--quick", *twice, "-o", tmp_path / "new")
    assert (code, err) == (1, "gocor: kitti2012 is given twice\n")
    code, _, err = call("study", "ablation", "-o", tmp_path / "new")
    assert (code, err) == (1, "gocor: a study trains networks: give --data with photos, or try it with --quick\n")


def test_the_papers_numbers_are_in_the_documentation():
    tables = paper_tables()
    for table in tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows.values())
    assert tables["ablation"].value("VI V and local, L_r", "kitti2015.fl") == 39.57
    page = Path(__file__).parents[2] / "docs" / "paper.md"
    assert to_markdown() in page.read_text(encoding="utf-8")
