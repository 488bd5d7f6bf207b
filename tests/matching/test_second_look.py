"""The second look at pairs that a network is unsure of."""

import pytest
import torch

from gocor.matching import second_look
from gocor.matching.api import match_tensors
from gocor.matching.features import FeatureCache, Images, match_at
from gocor.matching.options import MatchOptions
from gocor.matching.second_look import SecondLookSettings, predict_twice
from gocor.models import create_model
from gocor.models.outputs import Prediction
from gocor.ops.warp import pixel_grid

UNSURE, SURE = SecondLookSettings(sure=2), SecondLookSettings(sure=-1)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return create_model("recurrent-gocor-tiny").eval()


@pytest.fixture
def images():
    torch.manual_seed(1)
    return tuple(Images.of(255 * torch.rand(2, 3, 64, 96)) for _ in range(2))


@torch.inference_mode()
def look(network, images, settings, **options):
    return predict_twice(network, *images, confidence=True, second_look=True, settings=settings, min_size=0, **options)


def test_a_pair_that_the_network_is_sure_of_gets_none(network, images, monkeypatch):
    monkeypatch.setattr(second_look, "match_at", lambda *_, **__: pytest.fail("a second look"))
    with torch.inference_mode():
        expected = network.predict(images[0].pixels, images[1].pixels, min_size=0)
    for found, alone in zip(look(network, images, SURE), expected, strict=True):
        torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-4)


def test_half_the_size_comes_first_and_updates_are_bounded(network, images, monkeypatch):
    calls = []

    def match(network, reference, query, size, start=None, **options):
        calls.append((size, start is not None, options["updates"]))
        return match_at(network, reference, query, size, start=start, **options)

    monkeypatch.setattr(second_look, "match_at", match)
    look(network, images, UNSURE)
    assert calls == [((32, 48), False, 6), ((64, 96), True, 8)]
    calls.clear()
    look(network, images, UNSURE, updates=2)
    assert calls == [((32, 48), False, 2), ((64, 96), True, 2)]


def test_a_pair_does_not_depend_on_the_others_of_its_batch(network, images):
    both = look(network, images, UNSURE)
    for i in range(2):
        alone = look(network, tuple(batch[[i]] for batch in images), UNSURE)
        for maps, single in zip(both, alone, strict=True):
            torch.testing.assert_close(maps[[i]], single, rtol=1e-3, atol=1e-3)


def test_the_more_confident_result_counts():
    before = torch.cat([torch.zeros(1, 2, 48, 96), torch.full((1, 1, 48, 96), 0.5), torch.ones(1, 1, 48, 96)], 1)
    after = torch.cat([torch.ones(1, 2, 48, 96), torch.full((1, 1, 48, 96), 0.9), torch.zeros(1, 1, 48, 96)], 1)
    after[:, 2, :, 48:] = 0.52  # higher by less than is needed
    found = Prediction.of_maps(second_look.more_confident(before, after))
    assert found.flow[..., :40].all()
    assert not found.flow[..., 56:].any()
    assert (found.confidence[..., :40] == 0.9).all()
    assert not found.visibility[..., :40].any()
    assert before[:, :2].abs().sum() == 0


def test_a_start_in_pixels_of_the_images_is_taken_to_the_features(network):
    """A network whose updates do nothing ends with the flow that it starts from."""
    with torch.no_grad():
        network.update.change[-1].weight.zero_()
        network.update.change[-1].bias.zero_()
    reference, query = (Images.of(255 * torch.rand(1, 3, *size), FeatureCache()) for size in ((48, 80), (96, 40)))
    x, y = pixel_grid(48, 80).split(1, 1)
    # A shift by a tenth of the width and a twentieth of the height, as fractions of each image.
    start = torch.cat([(x + 0.5) * (40 / 80 - 1) + 0.1 * 40, (y + 0.5) * (96 / 48 - 1) - 0.05 * 96], 1)
    with torch.inference_mode():
        found = match_at(network, reference, query, (96, 160), start=start)
    torch.testing.assert_close(found.flow, start, rtol=0, atol=1e-3)


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("choice", [True, False, None])
def test_matching_looks_again_if_it_may(network, images, align, choice, quick_alignment, monkeypatch):
    looks, real = [], second_look._match_from_half
    monkeypatch.setattr(second_look, "_match_from_half", lambda *args: looks.append(1) or real(*args))
    for fast in (True, False):
        looks.clear()
        match_tensors(network, *images, MatchOptions(align=align, min_size=0, updates=2, second_look=choice, fast=fast))
        assert bool(looks) == (not fast if choice is None else choice)
