"""Images without texture, of one pixel and of extreme values: results and gradients of every network are finite."""

import numpy as np
import pytest
import torch

import gocor
from gocor.models import create_model, list_models

TINY = [name for name in list_models(tiny=True) if name.endswith("-tiny")]
SIZE = 64, 72


def flat_images() -> torch.Tensor:
    """Black, white, denormal numbers and noise, `(4, 3, 64, 72)`."""
    images = torch.zeros(4, 3, *SIZE)
    images[1], images[2] = 255, 1e-41
    images[3] = 255 * torch.rand(3, *SIZE, generator=torch.Generator().manual_seed(0))
    return images


@pytest.fixture(params=TINY)
def network(request):
    torch.manual_seed(0)
    return create_model(request.param)


def check_flat_images(network) -> None:
    images = flat_images()
    with torch.inference_mode():
        found = network.predict(images[[0, 1, 2, 0]], images[[0, 3, 2, 1]], min_size=0)
    for values in found:
        assert values is None or values.isfinite().all()


def test_flat_images(network):
    check_flat_images(network)


# The other networks work at 256×256, which takes too long in 16 bits on a CPU.
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["pwcnet-gocor-tiny", "recurrent-gocor-tiny"])
def test_flat_images_in_16_bits(name, dtype):
    torch.manual_seed(0)
    network = create_model(name)
    network.autocast_dtype = dtype
    check_flat_images(network)


def test_images_of_one_pixel(network):
    image = flat_images()[3:]
    with torch.inference_mode():
        assert network(image[:, :, :1, :1], image, min_size=0).isfinite().all()
        assert network(image, image[:, :, :, :1], min_size=0).isfinite().all()


def test_gradients_of_flat_images(network):
    network.train()
    images = flat_images()[[1, 3]].requires_grad_()
    inputs = network.prepare(images, images.detach().roll(1, 0), network.round_size(*SIZE))
    found = network.outputs(*inputs)
    loss = sum((flow.square().sum(1) + 1e-3).sqrt().mean() for flow in found.flows)
    (loss if found.confidence is None else loss + found.confidence.mean()).backward()
    assert loss.isfinite()
    assert images.grad is not None
    assert images.grad.isfinite().all()
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_values_that_are_not_finite():
    torch.manual_seed(0)
    network, image = create_model("pwcnet-gocor-tiny"), np.full((20, 24, 3), 0.5, np.float32)
    image[3, 4] = np.nan
    result = gocor.match(image, image, network)
    assert (result.reference[3, 4] == 0).all()
    assert result.flow.isfinite().all()
    image[3, 4] = np.inf
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got 0.5 to inf"):
        gocor.match(image, image, network)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("norm", [1e4, 1e-4])
def test_features_of_extreme_norm(dtype, norm):
    torch.manual_seed(0)
    features = norm * torch.nn.functional.normalize(torch.randn(2, 32, 8, 9), dim=1)
    reference, query = features.to(dtype), features.roll(1, 3).to(dtype)
    for module in (gocor.LocalGOCor(2), gocor.LocalGOCor(2, regularizer="relative"), gocor.GlobalGOCor(32)):
        with torch.no_grad():
            assert module(reference, query).isfinite().all()
            assert module(reference[..., :1, :1].expand_as(reference), query).isfinite().all()


def hostile_pair(kind: str) -> tuple[np.ndarray, np.ndarray]:
    noise = np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    colour = np.broadcast_to(np.array([10, 200, 30], np.uint8), noise.shape)
    return {
        "one colour": (colour, colour),
        "black and white": (np.zeros_like(noise), np.full_like(noise, 255)),
        "denormal": (np.full(noise.shape, 1e-41, np.float32), noise),
        "unknown": (np.full(noise.shape, np.nan, np.float16), noise),
        "one column": (noise[:, :1], noise),
        "one row": (noise[:1], noise[:, :1]),
        "wide": (np.tile(noise[:2], (1, 50, 1)), noise),
        "high": (noise, np.tile(noise[:, :2], (50, 1, 1))),
    }[kind]


@pytest.mark.usefixtures("quick_alignment")
@pytest.mark.parametrize(
    "kind", ["one colour", "black and white", "denormal", "unknown", "one column", "one row", "wide", "high"]
)
def test_matches_of_hostile_images_are_finite(network, kind):
    reference, query = hostile_pair(kind)
    result = gocor.match(reference, query, network, device="cpu")
    assert result.flow.shape == (2, *reference.shape[:2])
    assert result.flow.isfinite().all()
    assert result.confidence is None or result.confidence.isfinite().all()
