"""One step: what it changes, what it refuses to change, what it costs."""

import copy
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch
from torch.overrides import TorchFunctionMode

from gocor.models import create_model
from gocor.training.distributed import Group
from gocor.training.graph import record, restore
from gocor.training.step import TrainStep, checkpoint_activations

from .toy import Toy, toy_config, toy_run

ALONE = Group(0, 1, torch.device("cpu"))


def make_step(tmp_path, name="pwcnet-gocor-tiny", group=ALONE, size=64, **options):
    config = toy_config(tmp_path, model=name, size=size, **options)
    torch.manual_seed(0)
    network = create_model(name).to(group.device).train()
    return TrainStep(network, copy.deepcopy(network).eval(), config, group, (2, size, size))


def take(step, pairs, lr=1e-3, weight=0.5):
    step.load(pairs, lr=lr, ema_weight=weight)
    step.compute()


def values(step):
    return [tensor.clone() for tensor in step.state()]


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_step_moves_what_is_trained_and_the_average_half_of_it(tmp_path):
    step = make_step(tmp_path)
    start = {name: p.detach().clone() for name, p in step.network.named_parameters()}
    take(step, Toy().batch(0, 2))
    for name, now in step.network.named_parameters():
        moved = not torch.equal(now, start[name])
        assert moved or not now.requires_grad or now.grad.abs().max() < 1e-6, name
        assert now.requires_grad or not moved, name
        torch.testing.assert_close(step.average.state_dict()[name], (start[name] + now.detach()) / 2)
    metrics = step.read()
    assert metrics["skipped"] == 0
    assert metrics["loss"] > 0
    assert metrics["grad_norm"] > 0


def test_levels_without_weight_are_not_trained(tmp_path):
    step = make_step(tmp_path, "glunet-gocor-tiny", level_weights=[0.5, 0.5, 0, 0])
    start = {name: p.detach().clone() for name, p in step.network.named_parameters()}
    take(step, Toy().batch(0, 2))
    moved = {name for name, now in step.network.named_parameters() if not torch.equal(now, start[name])}
    assert any(name.startswith("decoder3") for name in moved)
    assert not any(name.startswith(("decoder1", "decoder2", "context1", "upflow2", "upfeat2")) for name in moved)
    assert 0 < step.read()["epe"] < 100


def test_the_error_is_in_pixels_of_the_images(tmp_path):
    """A network that answers no motion is off by the motion, whatever the size that it works at (256 here)."""
    step = make_step(tmp_path, "basenet-gocor-tiny")
    pairs = Toy().batch(0, 2)
    step.load(pairs, lr=0.0, ema_weight=0.0)
    target = torch.full((2, 2, 64, 64), 3.0), torch.ones(2, 1, 64, 64, dtype=torch.bool)
    error = step.fine_error(torch.zeros(2, 2, 64, 64), target)
    assert error.item() == pytest.approx(2 * 64 * 64 * 3 * 2**0.5 * 64 / 256, rel=1e-5)


def test_unknown_flow_is_neither_visible_nor_hidden(tmp_path):
    """Also if it is NaN, of which no comparison is true."""
    step, pairs = make_step(tmp_path), Toy().batch(0, 2)
    unknown = torch.zeros_like(pairs.valid)
    unknown[:, :, :20] = True
    step.load(
        replace(pairs, flow=torch.where(unknown, torch.nan, pairs.flow), valid=pairs.valid & ~unknown),
        lr=0.0,
        ema_weight=0.0,
    )
    assert not step.buffers.hidden[unknown].any()
    assert (step.buffers.hidden == ~step.buffers.visible)[~unknown].all()


def test_non_finite_steps_are_skipped_and_counted(tmp_path):
    """Batch statistics and the moving average included; later steps are as if the failed step had not been taken."""
    step, other = (make_step(tmp_path, "basenet-gocor-tiny", size=32) for _ in range(2))
    first, bad, last = (Toy((32, 32)).batch(index, 2) for index in range(3))
    bad.reference[0, 0, 5, 5] = float("inf")
    take(step, first)  # the average now differs from the network, so that an update would move it
    start = values(step)
    take(step, bad)
    after = values(step)
    assert same(after[:-1], start[:-1])
    assert step.skipped.item() == 1
    take(step, last)
    for pairs in (first, last):
        take(other, pairs)
    assert same(values(step)[:-1], values(other)[:-1])
    assert step.read()["loss"] == other.read()["loss"] > 0  # the mean of the steps that were taken


def test_occluded_pixels_count_if_asked(tmp_path):
    pairs = Toy().batch(0, 2)
    occluded = ~pairs.valid
    for count in (True, False):
        step = make_step(tmp_path, count_occluded=count)
        step.load(type(pairs)(pairs.reference, pairs.query, pairs.flow, pairs.valid, occluded), lr=0, ema_weight=0)
        assert step.buffers.mask.all() == count
    with pytest.raises(ValueError, match="expected images"):
        step.load(Toy((32, 32)).batch(0, 2), lr=0, ema_weight=0)


def test_gradients_are_clipped(tmp_path):
    step = make_step(tmp_path, clip=0.01)
    take(step, Toy().batch(0, 2), lr=0.0)
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in step.parameters]))
    assert norm.item() == pytest.approx(0.01, rel=1e-3)
    assert step.read()["grad_norm"] > 1


def test_state_is_all_that_steps_change(tmp_path):
    """Warming up for a CUDA graph takes steps and undoes them: the next step must not notice."""
    step = make_step(tmp_path, "basenet-gocor-tiny", size=32)
    take(step, Toy((32, 32)).batch(0, 2))
    saved = values(step)
    step.compute()
    once = values(step)
    restore(step, saved)
    assert same(values(step), saved)
    step.compute()
    assert same(values(step), once)
    assert not same(once, saved)


class NothingFromTheHost(TorchFunctionMode):
    """Within it, no tensor is made of Python numbers: on a GPU that is a copy, which a graph cannot hold."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in (torch.tensor, torch.as_tensor, torch.from_numpy), args
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["basenet-gocor-tiny", "glunet-gocor-tiny", "pwcnet-gocor-tiny"])
def test_nothing_comes_from_the_host_within_a_step(tmp_path, name):
    step = make_step(tmp_path, name, size=64)
    step.load(Toy((64, 64)).batch(0, 2), lr=0.0, ema_weight=0.0)
    with NothingFromTheHost():
        with pytest.raises(AssertionError):
            torch.tensor([1.0, 2.0])
        step.compute()


def test_recording_leaves_the_state_alone(tmp_path, monkeypatch):
    """With a stand-in for the device's graph that, like the real one, runs nothing while recording."""
    step = make_step(tmp_path)
    step.load(Toy().batch(0, 2), lr=1e-3, ema_weight=0.5)
    recording = []

    class Stream:
        def wait_stream(self, other):
            pass

    class Graph:
        def replay(self):
            step.compute()

    @contextmanager
    def graph(made, capture_error_mode):
        assert capture_error_mode == "thread_local"
        assert all(p.grad is None for p in step.parameters)
        recording.append(values(step))
        yield
        restore(step, recording[0])

    for name, stand_in in {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda stream: nullcontext(),
        "synchronize": lambda: None,
        "CUDAGraph": Graph,
        "graph": graph,
    }.items():
        monkeypatch.setattr(f"torch.cuda.{name}", stand_in)
    before = values(step)
    replay = record(step)
    assert same(recording[0], before)  # the steps of warming up are undone
    assert same(values(step), before)
    replay()
    assert not same(values(step), before)
    assert step.read()["loss"] > 0


def test_checkpointed_activations_take_less_memory_and_change_nothing(tmp_path):
    sizes, gradients = [], []
    for again in (False, True):
        step = make_step(tmp_path, clip=0)
        if again:
            checkpoint_activations(step.network)
        step.load(Toy().batch(0, 2), lr=0.0, ema_weight=0.0)
        held = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, held=held: held.append(t.nbytes) or t, lambda t: t):
            flows = step.forward().flows
            sizes.append(sum(held))
            sum(flow.square().mean() for flow in flows).backward()
        gradients.append([p.grad.clone() for p in step.parameters])
    assert sizes[1] < 0.7 * sizes[0]
    assert same(*gradients)


def test_sixteen_bits_and_channels_last(tmp_path):
    losses = []
    for options in ({}, {"precision": "bf16"}, {"channels_last": True}):
        step = make_step(tmp_path, **options)
        take(step, Toy().batch(0, 2))
        losses.append(step.read()["loss"])
    assert losses[1] != losses[0]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert losses[2] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize("name", ["pwcnet-gocor-tiny", "recurrent-gocor-tiny"])
def test_a_compiled_step_is_the_step(tmp_path, name, monkeypatch):
    compile_function, graphs = torch.compile, []

    def traced_only(function, **options):
        """Compiled code takes minutes to make; that tracing keeps the values does not need it."""
        graphs.append(function)
        return compile_function(function, backend="aot_eager", fullgraph=True, **options)

    monkeypatch.setattr(torch, "compile", traced_only)
    metrics = []
    for options in ({}, {"compile": True}):
        step = make_step(tmp_path, name, **options)
        for index in range(2):
            take(step, Toy().batch(index, 2))
        metrics.append(step.read())
    assert len(graphs) == 3
    assert metrics[1]["loss"] == pytest.approx(metrics[0]["loss"], rel=1e-4)
    assert metrics[1]["grad_norm"] == pytest.approx(metrics[0]["grad_norm"], rel=1e-2)


def test_a_tiny_network_learns_a_few_pairs_by_heart(tmp_path):
    from gocor.training.sources import Sources

    from .test_resume import records

    learnt = Toy(fixed=True, reach=4)
    toy_run(tmp_path, steps=20, lr=3e-3, ema=0.5, sources=Sources(learnt, learnt, "the same pairs"))
    errors = [record["epe"] for record in records(tmp_path) if record["kind"] == "train"]
    assert errors[-1] < 0.35 * errors[0]
    validation = [record["epe"] for record in records(tmp_path) if record["kind"] == "validation"]
    assert validation[-1] < 0.5 * errors[0]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["basenet-gocor-tiny", "glunet-gocor-tiny", "pwcnet-gocor-tiny"])
def test_a_recorded_step_is_the_step(tmp_path, name, device):
    if device.type != "cuda":
        pytest.skip("needs a CUDA device")
    group = Group(0, 1, device)
    step, other = (make_step(tmp_path, name, group, size=256, precision="float32") for _ in range(2))
    source = Toy((256, 256))
    step.load(source.batch(0, 2).to(device), lr=1e-3, ema_weight=0.5)
    before = values(step)
    replay = record(step)
    assert same(values(step), before)
    for index in range(3):
        pairs = source.batch(index, 2).to(device)
        step.load(pairs, lr=1e-3, ema_weight=0.5)
        replay()
        take(other, pairs)
    assert step.read()["loss"] == pytest.approx(other.read()["loss"], rel=1e-3)
    bad = source.batch(9, 2).to(device)
    bad.reference[0] = float("nan")
    before = values(step)
    step.load(bad, lr=1e-3, ema_weight=0.5)
    replay()
    assert same(values(step)[:-1], before[:-1])
    assert step.skipped.item() == 1


@pytest.mark.gpu
def test_a_step_never_waits_for_the_device(tmp_path, device):
    if device.type != "cuda":
        pytest.skip("needs a CUDA device")
    step = make_step(tmp_path, "basenet-gocor-tiny", Group(0, 1, device), size=256)
    pairs = Toy((256, 256)).batch(0, 2).to(device)
    take(step, pairs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        take(step, pairs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
