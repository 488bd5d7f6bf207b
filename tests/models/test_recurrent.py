"""The recurrent network on GOCor filters."""

import pytest
import torch

from gocor.models import create_model, load_model, recurrent_updates, save_model
from gocor.models.recurrent import RecurrentNet
from gocor.models.recurrent_blocks import MAX_GLOBAL, ConvexUpsampler, ConvGRU
from gocor.models.recurrent_updates import iterate, mean_motion
from gocor.models.starting import start_from
from gocor.modules import LocalGOCor


@pytest.fixture(scope="module", params=[False, True], ids=["coarse", "fine"])
def network(request):
    torch.manual_seed(0)
    return create_model("recurrent-gocor-tiny", {"fine": request.param})


def images(batch=1, size=(48, 64), query=None):
    return 255 * torch.rand(batch, 3, *size), 255 * torch.rand(batch, 3, *(query or size))


def test_levels_are_the_start_and_every_update(network):
    inputs = network.prepare(*images(), network.round_size(48, 64))
    with torch.no_grad():
        flows = network.levels(*inputs)
        assert len(flows) == 1 + network.updates + (network.fine_updates if network.fine else 0)
        assert all(flow.shape == (1, 2, 48, 64) for flow in flows)
        network.train()
        outputs = network.outputs(*inputs)
        network.eval()
    assert len(outputs.flows) == len(network.level_units(48, 64)) == len(network.loss_weights)
    assert outputs.confidence.shape == (1, 2, 48, 64)
    assert network.loss_weights[-1] == 1
    assert list(network.loss_weights) == sorted(network.loss_weights)


@pytest.mark.parametrize(("size", "query"), [((50, 70), None), ((33, 90), (64, 40))])
@torch.no_grad()
def test_any_sizes(network, size, query):
    assert network(*images(size=size, query=query), min_size=0).shape == (1, 2, *size)


@torch.no_grad()
def test_a_batch_is_matched_as_its_samples_are(network):
    reference, query = images(batch=3)
    flow = network(reference, query, min_size=0)
    for i in range(3):
        single = network(reference[i : i + 1], query[i : i + 1], min_size=0)
        torch.testing.assert_close(flow[i : i + 1], single, rtol=1e-3, atol=1e-3)


def test_every_trained_part_gets_a_gradient(network):
    network.train()
    flows, confidence = network.outputs(*network.prepare(*images(2), network.round_size(48, 64)))
    (sum(flow.square().mean() for flow in flows) + confidence.square().mean()).backward()
    network.eval()
    trained = {name for name, p in network.named_parameters() if p.requires_grad}
    missing = {name for name, p in network.named_parameters() if p.requires_grad and p.grad is None}
    assert not missing
    assert not any(name.startswith(("pyramid.level_0", "pyramid.level_1", "pyramid.level_2")) for name in trained)
    assert any(name.startswith("pyramid.level_4") for name in trained)
    network.zero_grad(set_to_none=True)


@torch.no_grad()
def test_the_start_finds_a_large_shift(network):
    """Global matching of features that are all different needs no training."""
    features = torch.randn(1, 16, 16, 24)
    shifted = features.roll((4, -6), (2, 3))
    network = RecurrentNet(None, None, channels=16, hidden=16, radius=2, scales=2, width=1 / 8)
    network.log_temperature.fill_(5.0)
    flow = network._start_flow(features, shifted, None)
    assert torch.allclose(flow[0, :, 4:-6, 8:-6].flatten(1).median(1).values, torch.tensor([-6.0, 4.0]), atol=0.05)


@torch.no_grad()
def test_large_maps_are_matched_at_a_coarser_scale(network):
    side = 2 * int(MAX_GLOBAL**0.5) + 4
    features = torch.randn(1, 16, side, side)
    assert network._start_flow(features, features, 0).shape == (1, 2, side, side)


def test_convex_upsampling_keeps_constant_flow():
    flow = torch.tensor([1.5, -2.0]).view(1, 2, 1, 1).expand(1, 2, 3, 4)
    fine = ConvexUpsampler(8)(torch.randn(1, 8, 3, 4), flow)
    torch.testing.assert_close(fine, 8 * flow[:, :, :1, :1].expand(1, 2, 24, 32))


def test_filters_are_optimised_once(network, monkeypatch):
    calls = []
    filters = LocalGOCor.filters
    monkeypatch.setattr(LocalGOCor, "filters", lambda self, *a: calls.append(a) or filters(self, *a))
    with torch.no_grad():
        network(*images(), min_size=0)
    assert len(calls) == (2 if network.fine else 1)


@torch.no_grad()
def test_predictions_have_the_flow_of_forward_and_probabilities(network):
    reference, query = images(size=(50, 70), query=(64, 40))
    found = network.predict(reference, query, min_size=0)
    torch.testing.assert_close(found.flow, network(reference, query, min_size=0))
    for probability in (found.confidence, found.visibility):
        assert probability.shape == (1, 1, 50, 70)
        assert 0 <= probability.min() <= probability.max() <= 1
    plain = create_model("basenet-gocor-tiny").predict(reference, query, min_size=0)
    assert plain.confidence is None
    assert plain.visibility is None


@torch.no_grad()
def test_the_number_of_updates_is_an_option(network):
    reference, query = images()
    flows = network.levels(*network.prepare(reference, query, (48, 64)))
    torch.testing.assert_close(network(reference, query, min_size=0, updates=network.updates), flows[-1])
    few = network(reference, query, min_size=0, updates=1)
    assert (few - flows[-1]).abs().max() > 1e-3
    with pytest.raises(ValueError, match="updates must be at least 1"):
        network(reference, query, updates=0)
    with pytest.raises(ValueError, match="basenet-gocor-tiny is not recurrent"):
        create_model("basenet-gocor-tiny")(reference, query, updates=3)


def test_the_unit_for_a_context_is_the_unit():
    unit = ConvGRU(4, (1, 5))
    hidden, context, inputs = torch.randn(3, 2, 4, 6, 7).unbind()
    update, reset = unit.gates(torch.cat([hidden, context, inputs], 1)).sigmoid().chunk(2, 1)
    new = unit.candidate(torch.cat([reset * hidden, context, inputs], 1)).tanh()
    torch.testing.assert_close(unit.given(context)(hidden, inputs), (1 - update) * hidden + update * new)


def test_levels_that_do_not_count_are_left_out(network):
    network.train()
    for count in (3, 8):
        outputs = network.outputs(*network.prepare(*images(), (48, 64)), count=count)
        assert len(outputs.flows) == min(count, len(network.loss_weights))
        assert outputs.confidence.shape == (1, 2, 48, 64)
    network.eval()


@torch.no_grad()
def test_the_fine_stage_starts_from_the_coarse_flow():
    """Before it is trained, its flow and its confidence are the coarse ones but for the change of resolution."""
    torch.manual_seed(0)
    fine, coarse = (create_model("recurrent-gocor-tiny", {"fine": value}) for value in (True, False))
    coarse.load_state_dict({k: v for k, v in fine.state_dict().items() if not k.startswith("fine.")})
    inputs = fine.prepare(*images(), (48, 64))
    with_fine, without = fine.outputs(*inputs), coarse.outputs(*inputs)
    for ours, theirs in zip(with_fine.flows, without.flows, strict=False):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(with_fine.confidence, without.confidence, atol=0.1, rtol=0.1)  # bilinear in two steps
    assert len(with_fine.flows) == len(without.flows) + fine.fine_updates
    moved = torch.linalg.vector_norm(with_fine.flows[-1] - without.flows[-1], dim=1)
    assert moved.mean() < 0.5  # pixels: the flow is read at 1/4 and brought to full resolution again


def test_training_may_add_the_fine_stage(tmp_path):
    torch.manual_seed(0)
    coarse, fine = create_model("recurrent-gocor-tiny"), create_model("recurrent-gocor-tiny", {"fine": True})
    save_model(coarse, tmp_path / "coarse.safetensors")
    start = start_from(fine, tmp_path / "coarse.safetensors")
    assert start.describe().endswith(f"{len(start.new)} of fine start anew")
    assert start.new == tuple(sorted(k for k in fine.state_dict() if k.startswith("fine.")))
    torch.testing.assert_close(fine.update.change[2].weight, coarse.update.change[2].weight)
    save_model(fine, tmp_path / "fine.safetensors")
    assert load_model("recurrent-gocor-tiny", tmp_path / "fine.safetensors").fine is not None
    assert start_from(coarse, tmp_path / "fine.safetensors").describe().endswith("of fine were dropped")


def test_updates_end_once_the_flow_has_settled():
    """Each sample as if it were alone, though the far one takes more updates."""

    def update(hidden, scores, flow):
        return hidden + 1, 0.5 * (3 - flow)

    def run(start, count=40):
        hidden = torch.zeros(len(start), 1, 1, 1)
        flow = torch.tensor(start).view(-1, 1, 1, 1).expand(-1, 2, 2, 2)
        return iterate(update, lambda at: at, hidden, flow, count, lambda _, change: mean_motion(change, one))

    one = torch.ones(1, 1, 2, 2)
    near, far, both = run([2.9]), run([-90.0]), run([2.9, -90.0])
    assert len(near) < len(far) == len(both) < 40
    for single, index in ((near, 0), (far, 1)):
        for ours, alone in zip(both[-1], single[-1], strict=True):
            assert torch.equal(ours[index : index + 1], alone)
    assert len(run([-90.0], count=3)) == 3


@torch.no_grad()
def test_inference_ends_early_and_training_does_not(network, monkeypatch):
    reference, query = images(2)
    inputs = network.prepare(reference, query, (48, 64))
    calls = []
    forward = type(network.update).given

    def counted(self, context):
        update = forward(self, context)
        return lambda *a: calls.append(self) or update(*a)

    monkeypatch.setattr(type(network.update), "given", counted)
    monkeypatch.setattr(recurrent_updates, "SETTLED", float("inf"))
    network(reference, query, min_size=0)
    assert sum(update is network.update for update in calls) == recurrent_updates.ASK_EVERY
    monkeypatch.setattr(recurrent_updates, "SETTLED", 0.0)
    calls.clear()
    network(reference, query, min_size=0)
    assert sum(update is network.update for update in calls) == network.updates
    monkeypatch.setattr(recurrent_updates, "SETTLED", float("inf"))
    assert len(network.outputs(*inputs).flows) > network.updates


def test_elongated_images_are_enlarged_to_the_area_of_others(network):
    def area(height, width, **bounds):
        size = network.working_size(height, width, min_size=1024, **bounds)
        return size[0] * size[1]

    assert network.working_size(480, 640, min_size=1024) == (768, 1024)
    assert network.working_size(376, 1242, min_size=1024)[1] > 1600
    for height, width in ((376, 1242), (436, 1024), (1242, 376)):
        assert area(height, width) == pytest.approx(768 * 1024, rel=0.03)
    assert network.working_size(376, 1242, min_size=1024, max_size=1024)[1] == 1024
    assert network.working_size(100, 800, min_size=1024)[1] == 1200  # no more than by half
    assert create_model("glunet-gocor-tiny").working_size(436, 1024, min_size=1024)[1] == 1024
