import numpy as np
import pytest
import torch
from PIL import Image

import gocor
from gocor.data.io import write_image
from gocor.demo.study import render_views
from gocor.matching import MatchResult
from gocor.matching.certainty import consistency
from gocor.matching.images import as_picture
from gocor.models import MatchingNetwork, create_model
from gocor.models.resizing import resize_image
from tests.conftest import relative_error

RNG = np.random.default_rng(0)


def picture(height: int, width: int) -> np.ndarray:
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return create_model("pwcnet-gocor-tiny")


@pytest.fixture(scope="module")
def exact():
    """A result whose flow is the truth of the rendered façade."""
    views = render_views()
    height, width = views.reference.shape[:2]
    y, x = np.mgrid[:height, :width].astype(float)
    to = np.stack([x, y, np.ones_like(x)], -1) @ views.homography.T
    flow = torch.from_numpy(to[..., :2] / to[..., 2:] - np.stack([x, y], -1)).permute(2, 0, 1).float()
    inverse = np.linalg.inv(views.homography)
    back = np.stack([x, y, np.ones_like(x)], -1) @ inverse.T
    backward = torch.from_numpy(back[..., :2] / back[..., 2:] - np.stack([x, y], -1)).permute(2, 0, 1).float()
    confidence, occlusion = consistency(flow[None], backward[None], 1.0)
    return views, MatchResult(views.reference, views.query, flow, confidence[0, 0], occlusion[0, 0], "truth")


def test_every_kind_of_image(tmp_path):
    rgb = picture(5, 7)
    grey = np.repeat(rgb[..., :1], 3, 2)
    write_image(tmp_path / "a.png", rgb)
    same = [
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        Image.fromarray(rgb),
        rgb,
        rgb.astype(np.uint16) * 257,
        rgb.astype(np.float32) / 255,
        torch.from_numpy(rgb).permute(2, 0, 1),
        torch.from_numpy(rgb).permute(2, 0, 1)[None].float() / 255,
        np.dstack([rgb, np.full((5, 7), 255, np.uint8)]),
        Image.fromarray(rgb).convert("RGBA"),
    ]
    for image in same:
        assert np.array_equal(as_picture(image), rgb), type(image)
    for image in (grey[..., 0], grey[..., :1], Image.fromarray(grey[..., 0]), torch.from_numpy(grey[..., 0].copy())):
        assert np.array_equal(as_picture(image), grey), type(image)
    with pytest.raises(TypeError, match="an image must be a path, a PIL image, an array or a tensor, got int"):
        as_picture(3)
    for shape in ((5, 7, 3), (2, 5, 7), (2, 3, 5, 7), (7,), (3, 0, 7)):
        with pytest.raises(ValueError, match=rf"a tensor must have shape \(C, H, W\).* got \({shape[0]},"):
            as_picture(torch.rand(shape))


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        *((mode, {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
        ("P", {"transparency": 0}),
        ("RGB", {"transparency": (0, 0, 0)}),
    ],
)
def test_an_image_of_pil_is_seen_as_its_file_is(mode, options, tmp_path):
    rgb = picture(5, 7)
    rgb[2, 3] = 0
    image = Image.fromarray(rgb).convert("L" if mode == "I;16" else mode).convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.fromarray(rgb[..., 0]))
    image.save(tmp_path / "a.png", **options)
    with Image.open(tmp_path / "a.png") as read:
        assert read.mode == mode
        assert np.array_equal(as_picture(read), as_picture(tmp_path / "a.png"))


def test_padded_and_premultiplied_images_of_pil():
    rgba = np.dstack([picture(5, 7), picture(5, 7)[..., 0]])
    straight = Image.fromarray(rgba)
    found = as_picture(straight.convert("RGBa")).astype(int)
    assert np.abs(found - as_picture(straight)).max() <= 2
    assert np.array_equal(as_picture(Image.fromarray(rgba[..., :3]).convert("RGBX")), rgba[..., :3])


def test_result_is_at_the_references_resolution(network):
    reference, query = picture(70, 100), picture(50, 64)
    result = gocor.match(reference, query, network)
    assert result.flow.shape == (2, 70, 100)
    assert result.flow.dtype == torch.float32
    assert result.confidence.shape == result.occlusion.shape == (70, 100)
    assert result.confidence.min() >= 0
    assert result.confidence.max() <= 1
    assert result.occlusion.dtype == torch.bool
    assert result.warp().shape == (70, 100, 3)
    assert result.model == "pwcnet-gocor-tiny"


def test_the_flow_is_the_networks_own(network):
    reference, query = picture(64, 70), picture(80, 64)
    images = [torch.from_numpy(x).permute(2, 0, 1)[None].float() for x in (reference, query)]
    with torch.inference_mode():
        assert relative_error(gocor.match(reference, query, network).flow, network(*images)[0]) < 1e-4


def test_many_pairs_are_matched_as_one_by_one(network):
    sizes = [
        ((40, 50), (60, 44)),
        ((40, 50), (60, 44)),
        ((40, 50), (60, 44)),
        ((33, 31), (40, 40)),
        ((40, 50), (60, 44)),
    ]
    references, queries = zip(*[(picture(*a), picture(*b)) for a, b in sizes], strict=True)
    together = gocor.match(list(references), list(queries), network, batch_size=2)
    assert len(together) == 5
    for reference, query, result in zip(references, queries, together, strict=True):
        single = gocor.match(reference, query, network)
        assert np.array_equal(result.reference, reference)
        torch.testing.assert_close(result.flow, single.flow, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(result.confidence, single.confidence, rtol=1e-2, atol=1e-2)


def test_a_name_is_enough_and_training_mode_is_left_as_it_was(network):
    with pytest.warns(gocor.models.UntrainedWarning):
        result = gocor.match(picture(32, 32), picture(32, 32), "glunet-gocor-tiny", weights=None, device="cpu")
    assert result.flow.isfinite().all()
    network.train()
    gocor.match(picture(32, 32), picture(32, 32), network)
    assert network.training
    network.eval()


def test_extreme_sizes(network):
    for reference, query in ((picture(1, 1), picture(90, 3)), (picture(2, 900), picture(1, 1))):
        result = gocor.match(reference, query, network)
        assert result.flow.shape == (2, *reference.shape[:2])
        assert result.flow.isfinite().all()


def test_a_flow_that_is_not_finite_is_an_error():
    network = create_model("pwcnet-gocor-tiny")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(1e38)
    with pytest.raises(ValueError, match="pwcnet-gocor-tiny finds a flow that is not finite"):
        gocor.match(picture(32, 32), picture(32, 32), network)


def test_bad_arguments(network):
    with pytest.raises(TypeError, match="both be one image, or both be lists"):
        gocor.match([picture(8, 8)], picture(8, 8), network)
    with pytest.raises(ValueError, match="same length, got"):
        gocor.match([picture(8, 8)] * 2, [picture(8, 8)], network)
    with pytest.raises(ValueError, match="no model is named"):
        gocor.match(picture(8, 8), picture(8, 8), "raft")
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        gocor.match(picture(8, 8), picture(8, 8), network, batch_size=0)


def test_a_true_flow_is_certain_and_warps_the_query_onto_the_reference(exact):
    views, result = exact
    seen = ~result.occlusion.numpy()
    assert seen.mean() > 0.75
    assert result.confidence[torch.from_numpy(seen)].min() > 0.9  # a confidence that can reach 1
    warped = result.warp().astype(float)
    reference, query = views.reference.astype(float), views.query.astype(float)

    def distance(a, b):  # light differs between the views: compare up to a gain
        a, b = a[seen], b[seen]
        return np.abs(a / a.mean(0) - b / b.mean(0)).mean()

    assert distance(warped, reference) < 0.4 * distance(query, reference)


def test_matches_are_spread_sorted_and_inside(exact):
    _, result = exact
    points = result.matches(max_points=500, min_confidence=0.5)
    assert points.dtype == np.float32
    assert points.shape[1] == 5
    assert 300 < len(points) <= 500
    assert (np.diff(points[:, 4]) <= 0).all()
    x, y, to_x, to_y, score = points.T
    assert (to_x >= 0).all()
    assert (to_x <= 479).all()
    assert (to_y >= 0).all()
    assert (score >= 0.5).all()
    flow = result.flow[:, y.astype(int), x.astype(int)].numpy()
    np.testing.assert_allclose(np.stack([to_x - x, to_y - y]), flow, atol=1e-3)
    assert len(np.unique(x.astype(int) // 60 + 100 * (y.astype(int) // 60))) > 30  # all over the image
    nothing = MatchResult(result.reference, result.query, result.flow, 0 * result.confidence, result.occlusion)
    assert len(nothing.matches()) == 0


def test_homography_and_fundamental_matrix(exact):
    views, result = exact
    matrix, inliers = result.homography()
    assert inliers.mean() > 0.99
    corners = np.array([[0, 0, 1], [479, 0, 1], [479, 383, 1], [0, 383, 1]]).T
    ours, true = matrix @ corners, views.homography @ corners
    np.testing.assert_allclose(ours[:2] / ours[2], true[:2] / true[2], atol=0.5)
    fundamental, inliers = result.fundamental()
    points = result.matches()[inliers].astype(float)
    one = np.ones((len(points), 1))
    residual = np.einsum("ni,ij,nj->n", np.hstack([points[:, 2:4], one]), fundamental, np.hstack([points[:, :2], one]))
    assert np.abs(residual).max() < 0.05 * np.abs(fundamental).max() * 480
    nothing = MatchResult(result.reference, result.query, result.flow, 0 * result.confidence, result.occlusion)
    with pytest.raises(ValueError, match="a homography needs 4 matches, there are 0"):
        nothing.homography()


class Inconsistent(MatchingNetwork):
    """Finds a motion of one pixel of its working size to the right, in whichever direction images are matched."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def round_size(self, height, width):
        return height, width

    def level_units(self, height, width):
        return [(height, width)]

    def prepare(self, reference, query, size):
        return resize_image(reference, size, published=False), resize_image(query, size, published=False)

    def levels(self, *inputs, iters_local=None, iters_global=None, count=None):
        flow = torch.zeros_like(inputs[0][:, :2])
        flow[:, 0] = 1
        return [flow]


@pytest.mark.parametrize("options", [{}, {"min_size": 120}, {"max_size": 30}, {"min_size": 120, "max_size": 90}])
def test_confidence_is_in_pixels_of_the_working_size(options):
    """Going to the query and back ends two working pixels from the start, so confidence is 1 / (1 + 2)."""
    network = Inconsistent()
    result = gocor.match(picture(40, 60), picture(40, 60), network, **options)
    torch.testing.assert_close(result.confidence[:, :56], torch.full((40, 56), 1 / 3), rtol=1e-3, atol=1e-3)
    network.min_size = 120
    again = gocor.match(picture(40, 60), picture(40, 60), network, **options)
    torch.testing.assert_close(again.confidence[:, :56], result.confidence[:, :56], rtol=1e-3, atol=1e-3)


def test_results_can_be_used_with_autograd(network):
    flow = gocor.match(picture(32, 32), picture(32, 32), network).flow
    weight = torch.ones(2, 1, 1, requires_grad=True)
    (weight * flow).sum().backward()
    assert weight.grad.isfinite().all()


def test_lists_of_different_lengths(network):
    images = [picture(16, 16)] * 3
    with pytest.raises(ValueError, match="same length, got 3 and 2 images"):
        gocor.match(images, images[:2], network)


def test_a_model_that_is_none():
    with pytest.raises(TypeError, match=r"model must be a name of list_models\(\) or a MatchingNetwork, got Conv2d"):
        gocor.match(picture(16, 16), picture(16, 16), torch.nn.Conv2d(1, 1, 1))
    with pytest.raises(TypeError, match="the name of a model must be a string, got Conv2d"):
        gocor.load_model(torch.nn.Conv2d(1, 1, 1))


def test_a_result_equals_itself_alone(network):
    images = picture(16, 16), picture(16, 16)
    first, second = (gocor.match(*images, network) for _ in range(2))
    assert torch.equal(first.flow, second.flow)
    assert first == first
    assert first != second
    assert len({first, second, first}) == 2
