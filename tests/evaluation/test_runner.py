"""Running: networks and functions, saving, resuming, and what makes a result stale."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

import gocor
from gocor.data.datasets import open_dataset
from gocor.data.io import read_image
from gocor.evaluation import INSIDE, evaluate, evaluate_all, network_matcher, open_benchmark
from gocor.evaluation.baselines import identity
from gocor.evaluation.protocols import TSS
from gocor.models import create_model

from ..data.datasets.samples import write_sample
from ..models.test_own_network import OwnNetwork
from ..test_assets import PHOTOS
from .oracles import Oracle


@pytest.fixture
def dataset(tmp_path):
    return open_dataset("hpatches", write_sample("hpatches", tmp_path / "data"))


def without_time(evaluation):
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in evaluation.rows]
    return rows, {key: value for key, value in evaluation.summary.items() if key != "seconds"}


class Interrupted:
    """A matcher during whose n-th call Ctrl-C is pressed."""

    def __init__(self, matcher, at):
        self.matcher, self.at, self.calls = matcher, at, 0

    def __call__(self, reference, query):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.matcher(reference, query)


def test_an_interrupted_run_goes_on_where_it_was(dataset, tmp_path):
    oracle = Oracle(dataset, INSIDE, factor=0.5)
    whole = evaluate(oracle, dataset)
    interrupted = Interrupted(oracle, at=4)
    with pytest.raises(KeyboardInterrupt):
        evaluate(interrupted, dataset, save=tmp_path / "saved")
    files = list((tmp_path / "saved").iterdir())
    assert len(files) == 3
    assert all(json.loads(file.read_bytes())["row"] for file in files)
    oracle.calls, seen = 0, []
    resumed = evaluate(oracle, dataset, save=tmp_path / "saved", progress=lambda *names: seen.append(names))
    assert oracle.calls == len(dataset) - 3
    assert [name for _, name in seen] == list(dataset.names)
    assert without_time(resumed) == without_time(whole)
    oracle.calls = 0
    again = evaluate(oracle, dataset, save=tmp_path / "saved")
    assert oracle.calls == 0
    assert again.summary == resumed.summary


def test_other_rules_notes_and_damaged_files_are_computed_again(dataset, tmp_path):
    oracle, few = Oracle(dataset, INSIDE), dataset[:2]

    def calls(**options):
        oracle.calls = 0
        evaluate(oracle, few, save=tmp_path / "saved", **options)
        return oracle.calls

    assert calls() == 2
    assert calls() == 0
    assert calls(note={"weights": "other"}) == 2
    assert calls(note={"weights": "other"}) == 0
    assert calls(protocol=replace(INSIDE, inside_only=False)) == 2
    file = next((tmp_path / "saved").iterdir())
    file.write_bytes(file.read_bytes()[:40])
    assert calls(protocol=replace(INSIDE, inside_only=False)) == 1


def test_a_failed_write_leaves_nothing_behind(dataset, tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        evaluate(identity, dataset, save=tmp_path / "saved")
    assert not list((tmp_path / "saved").iterdir())


def test_a_network_is_evaluated_as_it_is_and_left_so(dataset):
    network = create_model("pwcnet-gocor-tiny").train()
    few = dataset[:1]
    found = evaluate(network, few)
    assert network.training
    again = evaluate(network_matcher(network), few)
    assert without_time(found) == without_time(again)
    other = evaluate(network, few, iters_local=0)
    assert other.metrics["aepe"] != found.metrics["aepe"]
    images = (torch.from_numpy(i).permute(2, 0, 1)[None].float() for i in (few[0].reference, few[0].query))
    with torch.no_grad():  # with gradients GOCor takes another path, which rounds otherwise
        direct = network.eval()(*images)
    ours = network_matcher(network)(few[0].reference, few[0].query)
    assert np.allclose(ours, direct[0].permute(1, 2, 0).numpy(), atol=1e-5)


@pytest.mark.parametrize("align", [None, False])
def test_a_network_is_evaluated_as_it_matches(align):
    """The scored flow is that of `gocor.match`, alignment and flat scenes included."""
    network, reference = OwnNetwork().eval(), read_image(PHOTOS / "reference.jpg")[:300:2, :300:2].copy()
    query = np.ascontiguousarray(np.rot90(reference))
    result = gocor.match(reference, query, network, align=align, min_size=200)
    flow = network_matcher(network, align=align, min_size=200)(reference, query)
    assert np.array_equal(flow, result.flow.permute(1, 2, 0))
    assert (np.abs(flow).max() > 50) == (align is None)


def test_a_network_is_evaluated_where_it_is(dataset, device):
    network, few = create_model("pwcnet-gocor-tiny"), dataset[:1]
    there = evaluate(network.to(device), few).metrics["aepe"]
    assert next(network.parameters()).device.type == device.type
    assert evaluate(network.cpu(), few).metrics["aepe"] == pytest.approx(there, rel=1e-3)


def test_the_mode_is_restored_after_an_error(dataset):
    network = create_model("pwcnet-gocor-tiny").train()
    with pytest.raises(ValueError, match="no global correlation layer"):
        evaluate(network, dataset[:1], iters_global=3)
    assert network.training


def test_options_of_networks_are_not_for_functions(dataset):
    with pytest.raises(ValueError, match="options of networks"):
        evaluate(identity, dataset, iters_local=3)


def test_alignment_and_flips_exclude_each_other():
    with pytest.raises(ValueError, match="cannot be combined with a protocol that tries mirrored"):
        network_matcher(create_model("glunet-gocor-tiny"), align=True, flips=True)


def test_flips_are_tried_where_the_protocol_says_so(tmp_path):
    data = open_dataset("tss", write_sample("tss", tmp_path))[:1]
    network = create_model("glunet-gocor-tiny")
    calls = []
    original = network.forward_with_flips
    network.forward_with_flips = lambda *images, **options: calls.append(1) or original(*images, **options)
    evaluate(network, data, TSS)
    assert calls == [1]
    evaluate(create_model("basenet-gocor-tiny"), data, TSS)  # which cannot, and is used as it is


def test_a_matcher_that_returns_another_shape(dataset):
    with pytest.raises(ValueError, match=r"v_one_1_2: the flow must have shape"):
        evaluate(lambda reference, query: np.zeros((2, *reference.shape[:2])), dataset)


def test_nothing_to_evaluate(dataset):
    with pytest.raises(ValueError, match="has no pairs"):
        evaluate(identity, dataset[:0])


def test_several_data_sets(tmp_path):
    benchmarks = open_benchmark("sintel", write_sample("sintel", tmp_path / "data"))
    found = evaluate_all(identity, benchmarks, save=tmp_path / "saved")
    assert list(found) == ["sintel-clean", "sintel-final"]
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {"sintel-clean", "sintel-final"}
    assert found["sintel-clean"].metrics["aepe"] == pytest.approx(np.hypot(5, 3))


def test_the_papers_protocols_do_not_enlarge_images(tmp_path):
    benchmarks = open_benchmark("kitti2012", write_sample("kitti2012", tmp_path))
    (dataset, protocol), network = benchmarks["kitti2012"], create_model("glunet-gocor-tiny")
    assert network.min_size == 1024
    seen = []
    network.register_forward_pre_hook(lambda *_: None)
    original = network.working_size
    network.working_size = lambda *size, **options: seen.append(options["min_size"]) or original(*size, **options)
    evaluate(network, dataset, protocol)
    assert set(seen) == {0}
    seen.clear()
    evaluate(network, dataset, protocol, min_size=64)
    evaluate(network, dataset[:1], INSIDE, max_size=128)
    assert set(seen) == {64, 1024}
