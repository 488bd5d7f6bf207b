"""A homography in place of the flow, where a scene is flat."""

import cv2
import numpy as np
import pytest
import torch

from gocor.matching.planar import prefer_homography
from gocor.ops.homography import project_map
from gocor.ops.warp import pixel_grid
from tests.test_assets import PHOTOS

MATRIX = np.array([[0.98, -0.05, 12.0], [0.04, 1.01, -6.0], [5e-5, -3e-5, 1.0]])
SIZE = (240, 320)


def flow_of(matrix, size=SIZE):
    return (project_map(matrix, pixel_grid(*size)) - pixel_grid(*size)).float()


def tensor(image):
    return torch.from_numpy(image).permute(2, 0, 1)[None].float()


@pytest.fixture(scope="module")
def query():
    image = cv2.cvtColor(cv2.imread(str(PHOTOS / "query.jpg")), cv2.COLOR_BGR2RGB)
    return cv2.resize(image, SIZE[::-1], interpolation=cv2.INTER_AREA)


def seen(query, size=SIZE, matrix=MATRIX):
    """What the reference shows."""
    return cv2.warpPerspective(query, matrix, size[::-1], flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)


def inside(size=SIZE):
    """A part of the reference that the query shows."""
    return np.s_[..., size[0] // 8 : -size[0] // 8, size[1] // 8 : -size[1] // 8]


def error(flow, true):
    return torch.linalg.vector_norm(flow - true, dim=1)


def test_noise_and_slides_are_straightened(query):
    reference = seen(query)
    reference[150:200, 100:220] = 128  # nothing to be seen: the flow may be anything there
    other = query.copy()
    corners = np.array([[100.0, 150], [220, 150], [220, 200], [100, 200]])
    cv2.fillConvexPoly(other, cv2.perspectiveTransform(corners[None], MATRIX).round().astype(int), (128, 128, 128))
    true = flow_of(MATRIX)
    flow = true + 0.3 * torch.randn(true.shape)
    flow[..., 165:190, 120:200] += 7
    found, belief = prefer_homography(tensor(reference), tensor(other), flow)
    assert error(found, true)[inside()].mean() < 0.05
    assert belief.shape == (1, 1, *SIZE)
    assert belief[inside()].mean() > 0.9
    assert belief.max() <= 1
    assert error(found, true)[..., 165:190, 120:200].max() < 1.5
    assert error(flow, true)[..., 165:190, 120:200].min() > 7


def test_a_surface_that_is_a_little_curved_keeps_its_flow(query):
    y, x = np.mgrid[: SIZE[0], : SIZE[1]].astype(np.float32)
    bend = 0.9 * np.sin(2 * np.pi * x / SIZE[1]) * np.sin(2 * np.pi * y / SIZE[0])
    flat = flow_of(MATRIX)
    true = flat + torch.from_numpy(bend)
    mapped = [at + true[0, i].numpy() for i, at in enumerate((x, y))]
    reference = cv2.remap(query, *mapped, cv2.INTER_CUBIC)
    flow = true + 0.1 * torch.randn(true.shape)
    found, belief = prefer_homography(tensor(reference), tensor(query), flow)
    assert torch.equal(found, flow)
    assert not belief.any()
    assert error(flat, true).max() < 3  # near enough to the plane that a homography explains nearly all of it


def test_what_moves_on_its_own_keeps_its_flow(query):
    reference = seen(query)
    patch = np.random.default_rng(0).integers(0, 255, (10, 12, 3), dtype=np.uint8)
    patch = cv2.resize(patch, (48, 40), interpolation=cv2.INTER_CUBIC)
    reference[100:140, 120:168] = patch
    other = query.copy()
    other[80:120, 160:208] = patch
    flow = flow_of(MATRIX) + 0.3 * torch.randn(1, 2, *SIZE)
    flow[..., 100:140, 120:168] = torch.tensor([40.0, -20.0])[:, None, None]
    found, belief = prefer_homography(tensor(reference), tensor(other), flow)
    assert (belief[..., 106:134, 126:162] == 0).all()
    assert (found[..., 106:134, 126:162] == flow[..., 106:134, 126:162]).all()
    assert error(found, flow_of(MATRIX))[..., 40:80, 60:260].mean() < 0.1


def test_what_leaves_the_query_does_not_stay_in_it(query):
    matrix = np.array([[1.0, 0, 60], [0, 1, 0], [0, 0, 1]])
    reference = seen(query, matrix=matrix)
    texture = np.random.default_rng(0).integers(0, 255, (SIZE[0] // 3, 12, 3), dtype=np.uint8)
    texture = cv2.GaussianBlur(cv2.resize(texture, (35, SIZE[0]), interpolation=cv2.INTER_CUBIC), (0, 0), 2)
    reference[:, 270:305] = query[:, 285:] // 2 + texture // 2
    flow = flow_of(matrix) + 0.2 * torch.randn(1, 2, *SIZE)
    flow[..., 270:305] -= torch.tensor([45.0, 0])[:, None, None]  # back to what resembles it a little
    found = prefer_homography(tensor(reference), tensor(query), flow).flow
    assert error(found, flow_of(matrix))[..., 280:300].mean() < 15
    assert error(flow, flow_of(matrix))[..., 280:300].mean() > 40


def test_a_scene_that_is_not_flat_stays_as_it_is(query):
    x, y = np.meshgrid(np.arange(SIZE[1], dtype=np.float32), np.arange(SIZE[0], dtype=np.float32))
    bend = 6 * np.sin(x / 25)
    reference = cv2.remap(query, x, y + bend, cv2.INTER_LINEAR)
    flow = torch.from_numpy(np.stack([np.zeros_like(bend), bend]))[None] + 0.1 * torch.randn(1, 2, *SIZE)
    found, belief = prefer_homography(tensor(reference), tensor(query), flow)
    assert torch.equal(found, flow)
    assert not belief.any()


def test_sizes_may_differ_and_be_large(query):
    reference, scale = seen(query), 5
    large = cv2.resize(reference, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    grow = np.array([[scale, 0, (scale - 1) / 2], [0, scale, (scale - 1) / 2], [0, 0, 1]])
    true = flow_of(MATRIX @ np.linalg.inv(grow), large.shape[:2])
    flow = true + 0.2 * torch.randn(1, 2, *SIZE).repeat_interleave(scale, 2).repeat_interleave(scale, 3)
    found = prefer_homography(tensor(large), tensor(query), flow).flow
    assert error(found, true)[inside(large.shape[:2])].max() < 0.15
    assert error(flow, true).max() > 0.5


@pytest.mark.parametrize("size", [(1, 1), (7, 300), (64, 64)])
def test_nothing_to_go_by(size):
    flow = torch.randn(1, 2, *size)
    flow[0, 0, 0, 0] = torch.inf
    for image in (torch.zeros(1, 3, *size), 255 * torch.rand(1, 3, *size)):
        assert torch.equal(prefer_homography(image, image, flow).flow, flow)
