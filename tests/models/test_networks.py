"""What every network promises, tried on the small variants."""

import numpy as np
import pytest
import torch
from torch import nn

import gocor
from gocor.data.io import read_image
from gocor.models import BaseNet, PWCNet, create_model, list_models
from gocor.models.decoders import Upsampler
from tests.conftest import relative_error
from tests.test_assets import PHOTOS

TINY = [name for name in list_models(tiny=True) if name.endswith("-tiny")]
every_tiny = pytest.mark.parametrize("name", TINY)


def images(device, *sizes, batch=1):
    return [255 * torch.rand(batch, 3, *size, device=device) for size in sizes]


@every_tiny
@pytest.mark.parametrize("sizes", [((40, 56), (40, 56)), ((300, 277), (64, 65)), ((1, 1), (3, 2))])
def test_any_two_sizes(name, sizes, device):
    network = create_model(name).to(device)
    reference, query = images(device, *sizes)
    with torch.inference_mode():
        flow = network(reference, query)
    assert flow.shape == (1, 2, *sizes[0])
    assert flow.dtype == torch.float32
    assert flow.isfinite().all()


@every_tiny
def test_a_batch_is_its_samples_one_by_one(name, device):
    network = create_model(name).to(device)
    reference, query = images(device, (70, 90), (80, 60), batch=3)
    with torch.inference_mode():
        singles = torch.cat([network(reference[i : i + 1], query[i : i + 1]) for i in range(3)])
        assert relative_error(network(reference, query), singles) < 1e-4


@every_tiny
def test_trains(name, device):
    """Every parameter that is meant to be learnt gets a gradient from the levels' flows; the pyramid gets none."""
    network = create_model(name).to(device).train()
    reference, query = images(device, (64, 64), (64, 64), batch=2)
    inputs = network.prepare(reference, query, network.working_size(64, 64))
    flows, confidence = network.outputs(*inputs)
    results = flows if confidence is None else [*flows, confidence]
    sum(result.square().mean() for result in results).backward()
    for key, parameter in network.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, key
        assert parameter.grad is None or parameter.grad.isfinite().all(), key


@every_tiny
def test_the_coarsest_levels_alone(name, device):
    network = create_model(name).to(device)
    inputs = network.prepare(*images(device, (64, 64), (64, 64)), network.working_size(64, 64))
    with torch.inference_mode():
        flows = network.levels(*inputs)
        for count in range(1, len(flows) + 1):
            torch.testing.assert_close(network.levels(*inputs, count=count), flows[:count], rtol=1e-4, atol=1e-4)


@every_tiny
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 0.4), (torch.float16, 0.05)])
def test_sixteen_bit_autocast_stays_close(name, dtype, bound, device):
    """With random weights, which amplify every rounding; trained networks stay closer."""
    network = create_model(name).to(device)
    reference, query = images(device, (64, 96), (64, 96))
    with torch.inference_mode():
        expected = network(reference, query)
        network.autocast_dtype = dtype
        flow = network(reference, query)
    assert flow.dtype == torch.float32
    assert relative_error(flow, expected) < bound


@every_tiny
def test_compiles(name, device):
    network = create_model(name).to(device)
    reference, query = images(device, (64, 96), (64, 96))
    with torch.no_grad():
        compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(reference, query), network(reference, query), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["glunet-gocor-tiny", "pwcnet-gocor-tiny"])
def test_iterations_can_be_changed_per_call(name):
    network = create_model(name)
    reference, query = images("cpu", (64, 64), (64, 64))
    with torch.inference_mode():
        assert not torch.equal(network(reference, query, iters_local=0), network(reference, query, iters_local=3))
        torch.testing.assert_close(network(reference, query, iters_local=3), network(reference, query))
        if name.startswith("glunet"):
            other = network(reference, query, iters_global=0)
            assert not torch.equal(other, network(reference, query))
        else:
            with pytest.raises(ValueError, match="no global correlation layer"):
                network(reference, query, iters_global=3)


@pytest.mark.parametrize(
    ("own", "options", "expected"),
    [
        (0, {}, (320, 256)),  # 300×200, rounded up to multiples of 64
        (0, {"max_size": 128}, (128, 128)),  # 128×85
        (0, {"min_size": 450}, (512, 320)),  # 450×300
        (450, {}, (512, 320)),
        (450, {"min_size": 0}, (320, 256)),
        (450, {"max_size": 400}, (448, 320)),  # 400×267: the upper bound wins
        (0, {"min_size": 5000}, (960, 640)),  # 900×600: at most threefold
    ],
)
def test_bounds_of_the_working_size(own, options, expected):
    network = create_model("pwcnet-gocor-tiny")
    network.min_size = own
    seen = []
    network.pyramid.register_forward_hook(lambda module, inputs, output: seen.append(tuple(inputs[0].shape[2:])))
    reference, query = images("cpu", (300, 200), (100, 100))
    with torch.inference_mode():
        flow = network(reference, query, **options)
    assert flow.shape == (1, 2, 300, 200)
    assert set(seen) == {expected}


def test_published_rules_enlarge_no_image():
    network = create_model("glunet-gocor-tiny")
    assert network.min_size > 0
    network.use_published_rules()
    assert network.min_size == 0
    with pytest.raises(ValueError, match="min_size must be at least 0"):
        network(*images("cpu", (64, 64), (64, 64)), min_size=-1)


def test_a_network_that_sees_no_motion_maps_corners_to_corners():
    """Unequal sizes: a zero flow at the working size is a scaling between the images' own pixels."""
    network = create_model("pwcnet-gocor-tiny")
    for decoder in [*network.decoders, network.context]:
        nn.init.zeros_(decoder.predict.weight)
    reference, query = images("cpu", (64, 128), (128, 64))
    with torch.inference_mode():
        flow = network(reference, query)
    x, y = torch.arange(128.0), torch.arange(64.0)
    torch.testing.assert_close(flow[0, 0], ((x + 0.5) / 2 - 0.5 - x).expand(64, 128))
    torch.testing.assert_close(flow[0, 1], ((y + 0.5) * 2 - 0.5 - y)[:, None].expand(64, 128))


@pytest.mark.parametrize("size", [(256, 1400), (1400, 256)])
def test_large_images_get_extra_levels_whichever_side_is_long(size):
    network = create_model("glunet-tiny")
    calls = []
    network.decoder2.register_forward_hook(lambda *_: calls.append(1))
    reference, query = images("cpu", size, size)
    with torch.inference_mode():
        network(reference, query)
        assert len(calls) == 2  # one extra level from about 724 pixels on
        calls.clear()
        network.published = True
        network(reference, query)
        assert len(calls) == (2 if size[1] > size[0] else 1)  # published code looks at the width alone


def test_extra_levels_are_trained():
    network = create_model("glunet-tiny").train()
    calls = []
    network.decoder2.register_forward_hook(lambda *_: calls.append(1))
    for size, count in (((512, 512), 1), ((256, 768), 2)):
        calls.clear()
        network.levels(*network.prepare(*images("cpu", size, size), size))
        assert len(calls) == count


@pytest.mark.parametrize("name", ["glunet-gocor-tiny", "glunet-tiny"])
def test_mirrored_images_are_matched_sample_by_sample(name, monkeypatch):
    network = create_model(name)
    reference, query = images("cpu", (256, 256), (256, 256), batch=2)
    with torch.inference_mode():
        # A verdict that prefers the second sample mirrored, whatever the random network thinks.
        mirror = reference[1].flip(2)

        def agreement(first, second, options):
            is_mirrored = [bool((x == mirror).all()) or bool((x == query[1].flip(2)).all()) for x in first]
            return torch.tensor([float(m) for m in is_mirrored])

        real = network._agreement(reference, query, {})
        assert real.shape == (2,)
        monkeypatch.setattr(network, "_agreement", agreement)
        flow, mirrored = network.forward_with_flips(reference, query)
        assert mirrored.tolist() == [False, True]
        torch.testing.assert_close(flow[:1], network(reference[:1], query[:1]), rtol=1e-3, atol=1e-2)
        # Where the mirrored reference's pixel goes, the reference's own pixel goes too.
        x = torch.arange(256.0)
        straight = network(mirror[None], query[1:])[0]
        torch.testing.assert_close((flow[1, 0] + x).flip(1), straight[0] + x, rtol=1e-3, atol=1e-2)
        torch.testing.assert_close(flow[1, 1].flip(1), straight[1], rtol=1e-3, atol=1e-2)


def test_published_pwcnet_resizes_bytes_as_pillow_does():
    from PIL import Image

    picture = torch.randint(0, 256, (100, 150, 3), dtype=torch.uint8)
    network = create_model("pwcnet-gocor-tiny")
    network.published = True
    image = picture.permute(2, 0, 1)[None].float()
    ours, _ = network.prepare(image, image, (128, 192))
    expected = torch.from_numpy(
        np.asarray(Image.fromarray(picture.numpy()).resize((192, 128), Image.Resampling.BILINEAR)).copy()
    )
    difference = (255 * ours[0].flip(0).permute(1, 2, 0)).round() - expected
    assert (difference != 0).float().mean() < 0.005
    assert difference.abs().max() <= 1


def test_a_layer_of_ones_own():
    class Mine(nn.Module):
        def forward(self, reference, query, iters=None):
            return gocor.local_correlation(reference, query, 2) ** 3

    network = PWCNet([Mine() for _ in range(5)], radius=2, width=1 / 8).eval()
    reference, query = images("cpu", (64, 64), (64, 64))
    assert network(reference, query).shape == (1, 2, 64, 64)
    with pytest.raises(ValueError, match="five local correlation layers, got 2"):
        PWCNet([Mine(), Mine()])
    with pytest.raises(ValueError, match="activation must be one of"):
        BaseNet(Mine(), Mine(), activation="relu")


def test_flow_upsamplers_start_as_bilinear_interpolation():
    network = create_model("glunet-tiny")
    assert isinstance(network.upflow2, Upsampler)
    flow = torch.randn(1, 2, 6, 7)
    expected = nn.functional.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(network.upflow2(flow)[..., 2:-2, 2:-2], expected[..., 2:-2, 2:-2])


@torch.no_grad()
def test_pwcnet_starts_with_features_that_correlations_can_tell_apart_and_small_flows():
    network = create_model("pwcnet")
    images = [read_image(PHOTOS / f"{name}.jpg") for name in ("reference", "query")]
    pair = network.prepare(*(torch.from_numpy(i).permute(2, 0, 1)[None].float() for i in images), (256, 320))
    for features in network.pyramid(pair[0])[1:]:
        assert 0.3 < features.std() < 3
    volumes = []
    for layer in network.matching:
        layer.register_forward_hook(lambda module, inputs, volume: volumes.append(volume))
    flows = network.levels(*pair)
    assert min(volume.std(1).mean() for volume in volumes) > 0.05
    assert max(flow.std() for flow in flows) < 30


def test_bad_images():
    network = create_model("pwcnet-gocor-tiny")
    with pytest.raises(ValueError, match="reference must have 3 channels"):
        network(torch.rand(1, 1, 64, 64), torch.rand(1, 3, 64, 64))
    with pytest.raises(TypeError, match="floating-point"):
        network(torch.zeros(1, 3, 64, 64, dtype=torch.uint8), torch.rand(1, 3, 64, 64))
    with pytest.raises(ValueError, match="one batch size"):
        network(torch.rand(2, 3, 64, 64), torch.rand(1, 3, 64, 64))
