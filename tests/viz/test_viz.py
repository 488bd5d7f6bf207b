"""Pictures of flows and matches, and results as files."""

import errno
import json
import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from gocor.data.io import read_flow, read_image
from gocor.demo.study import HEIGHT, WIDTH, grid, render_views
from gocor.matching import MatchResult, save_result
from gocor.ops.warp import inside_mask
from gocor.viz import (
    color_legend,
    draw_confidence,
    draw_flow,
    draw_matches,
    draw_overlay,
    flow_scale,
    flow_to_color,
)

PICTURES = {"flow.png", "warped.png", "overlay.png", "matches.png", "confidence.png"}
FILES = PICTURES | {"flow.flo", "matches.csv", "done.json"}


@cache
def exact() -> MatchResult:
    """The façade of the demonstration with its true flow."""
    views = render_views()
    x, y, depth = np.moveaxis(np.insert(grid(WIDTH, HEIGHT), 2, 1, axis=-1) @ views.homography.T, -1, 0)
    flow = torch.from_numpy(np.stack([x / depth, y / depth]) - np.moveaxis(grid(WIDTH, HEIGHT), -1, 0)).float()
    inside = inside_mask(flow[None], (HEIGHT, WIDTH))[0, 0]
    return MatchResult(views.reference, views.query, flow, 0.9 * inside.float(), ~inside, "exact")


def uniform(dx, dy, size=(2, 3)):
    return np.broadcast_to(np.array([dx, dy], np.float32)[:, None, None], (2, *size))


def saturation(picture):
    return float(np.ptp(picture.astype(int), axis=-1).mean())


@pytest.mark.parametrize(
    ("direction", "colour"),
    [((1, 0), (255, 0, 0)), ((0, 1), (255, 234, 0)), ((-1, 0), (0, 197, 255)), ((0, -1), (103, 0, 255))],
)
def test_directions_have_middleburys_colours(direction, colour):
    np.testing.assert_allclose(flow_to_color(uniform(*direction), 1.0)[0, 0], colour, atol=1)


def test_length_is_saturation():
    assert (flow_to_color(uniform(0, 0), 1.0) == 255).all()
    np.testing.assert_allclose(flow_to_color(uniform(2, 0), 4.0)[0, 0], (255, 128, 128), atol=1)
    np.testing.assert_allclose(flow_to_color(uniform(9, 0), 4.0)[0, 0], (191, 0, 0), atol=1)  # beyond: darker


def test_hue_has_no_seam():
    above, below = (flow_to_color(uniform(1, dy), 1.01)[0, 0].astype(int) for dy in (-1e-4, 1e-4))
    assert np.abs(above - below).max() <= 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e10])
def test_unknown_flow_is_black(value):
    flow = uniform(3, 4).copy()
    flow[1, 0, 0] = value
    colours = flow_to_color(torch.from_numpy(flow))
    assert (colours[0, 0] == 0).all()
    assert colours[0, 1].any()
    assert flow_scale(flow) == pytest.approx(5)


def test_scale_is_the_maximum_without_outliers():
    flow = np.zeros((2, 100, 100), np.float32)
    assert flow_scale(flow) == 0.01
    flow[0] = np.linspace(0, 10, 100)
    assert flow_scale(flow) == pytest.approx(10)
    flow[0, :3, 0] = 1000
    assert 9.9 < flow_scale(flow) < 13
    flow[:] = 0
    flow[0, 0, 0] = 7  # only one pixel moves
    assert flow_scale(flow) == 7
    assert flow_scale(np.full((2, 1, 1), np.nan)) == 1


def test_legend_is_the_flow_from_its_centre():
    wheel = color_legend(101)
    assert wheel.shape == (101, 101, 3)
    assert (wheel[0, 0] == 255).all()
    np.testing.assert_allclose(wheel[50, 50], 255, atol=6)
    for x, y in ((80, 50), (50, 20), (30, 70)):
        there = flow_to_color(uniform((x - 50) / 50.5, (y - 50) / 50.5), 1.0)[0, 0].astype(int)
        np.testing.assert_allclose(wheel[y, x], there, atol=3)


def test_drawing_of_a_flow():
    flow = exact().flow
    bare, drawn = draw_flow(flow, legend=False), draw_flow(flow)
    np.testing.assert_array_equal(bare, flow_to_color(flow))
    assert (bare != drawn).any(-1).mean() < 0.1
    assert (drawn[-20:, -20:] != bare[-20:, -20:]).any()  # in the corner
    assert (drawn[:200] == bare[:200]).all()
    assert draw_flow(flow, max_side=100).shape == (80, 100, 3)
    assert draw_flow(flow[:, :1, :1]).shape == (1, 1, 3)


def test_overlay_is_grey_where_images_agree():
    result = exact()
    inside = ~result.occlusion.numpy()
    inner = (slice(40, -40), slice(40, -40))
    aligned = draw_overlay(result.reference, result.warp(), inside)
    shifted = draw_overlay(result.reference, np.roll(result.warp(), 2, 1), inside)
    assert saturation(aligned[inner]) < 8  # only noise, in spite of another illumination
    assert saturation(shifted[inner]) > 2 * saturation(aligned[inner])
    alone = aligned[~inside].astype(int)
    assert (alone[:, 0] >= alone[:, 1]).all()
    assert saturation(draw_overlay(result.reference, result.reference)) < 1
    assert draw_overlay(result.reference, np.zeros_like(result.reference), max_side=50).shape == (40, 50, 3)


def test_lines_end_at_the_matches():
    black = np.zeros((50, 60, 3), np.uint8)
    drawn = draw_matches(black, black, np.array([[10, 20, 30, 40, 0.9]], np.float32))
    assert drawn.shape == (50, 60 + 8 + 60, 3)
    assert drawn[20, 10].any()
    assert drawn[40, 68 + 30].any()
    lit = np.argwhere(drawn.any(-1) & ~(drawn == 255).all(-1))
    assert (lit.min(0) >= (16, 6)).all()
    assert (lit.max(0) <= (44, 68 + 34)).all()


def test_lines_between_images_of_other_sizes():
    result = exact()
    query = result.query[:100, :50]
    matches = np.array([[5, 5, 49, 99], [5, 5, 50.6, 0], [np.nan, 0, 0, 0], [-1, 0, 0, 0]])
    drawn = draw_matches(result.reference, query, matches)
    assert drawn.shape == (HEIGHT, WIDTH + 8 + HEIGHT // 2, 3)
    only_first = draw_matches(result.reference, query, matches[:1])
    np.testing.assert_array_equal(drawn, only_first)  # the others lie outside of the pictures
    assert (draw_matches(result.reference, query, matches[:0])[:, :WIDTH] == result.reference).all()
    assert max(draw_matches(result.reference, query, matches, max_side=200).shape) <= 200


def test_the_number_of_lines_is_limited():
    black = np.zeros((100, 100, 3), np.uint8)
    points = np.tile(grid(100, 100).reshape(-1, 2), 2)
    few, more = (draw_matches(black, black, points, count)[:, :100].any(-1).mean() for count in (3, 30))
    assert 0 < few < more
    assert not draw_matches(black, black, points, 0)[:, :100].any()


def test_confidence_goes_from_violet_to_yellow():
    drawn = draw_confidence(torch.tensor([[0.0, 1.0, np.nan]]))
    np.testing.assert_allclose(drawn[0], [(68, 1, 84), (253, 231, 37), (68, 1, 84)], atol=2)
    large = draw_confidence(np.zeros((300, 400)))
    assert (large[-10:, -10:] != large[0, 0]).any()  # the bar
    assert (large[:200] == large[0, 0]).all()
    assert draw_confidence(np.zeros((300, 400)), max_side=40).shape == (30, 40, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flow_to_color(np.zeros((3, 4, 4))), r"\(2, H, W\)"),
        (lambda: flow_to_color(np.zeros((2, 4, 4)), 0.0), "positive"),
        (lambda: draw_flow(np.zeros((2, 4, 4)), max_side=0), "max_side"),
        (lambda: draw_overlay(np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)), "the same shape"),
        (lambda: draw_overlay(np.zeros((4, 4), np.uint8), np.zeros((4, 4), np.uint8)), "RGB"),
        (lambda: draw_matches(*[np.zeros((4, 4, 3), np.uint8)] * 2, np.zeros((4, 3))), "rows"),
        (lambda: draw_confidence(np.zeros((1, 4, 4))), r"\(H, W\)"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_saved_result(tmp_path):
    folder = tmp_path / "new" / "folder"
    paths = save_result(
        exact(), folder, formats=("flo", "kitti", "npz", "pfm"), max_points=50, note={"weights": "mine"}
    )
    flows = {"flow.flo", "flow_kitti.png", "flow.npz", "flow.pfm"}
    assert {path.name for path in folder.iterdir()} == FILES | flows
    assert {path.name for path in paths} == FILES | flows
    assert paths[-1] == folder / "done.json"
    for name in flows:
        flow, valid = read_flow(folder / name)
        assert valid.all()
        np.testing.assert_allclose(flow, exact().flow, atol=1 / 64 if "kitti" in name else 0)
    np.testing.assert_array_equal(read_image(folder / "warped.png"), exact().warp())
    assert exact().warp().shape == exact().reference.shape
    table = np.genfromtxt(folder / "matches.csv", delimiter=",", names=True)
    assert table.dtype.names == ("x", "y", "x_query", "y_query", "confidence")
    np.testing.assert_allclose(table.tolist(), exact().matches(50), atol=1e-3)
    done = json.loads((folder / "done.json").read_text())
    assert done["model"] == "exact"
    assert done["weights"] == "mine"
    assert done["reference_size"] == [HEIGHT, WIDTH]
    assert done["matches"] == len(table) == 50
    assert set(done["files"]) == FILES - {"done.json"} | flows


def test_method_of_the_result(tmp_path):
    assert {os.path.basename(path) for path in exact().save(tmp_path)} == FILES


def test_no_matches_is_no_error(tmp_path):
    save_result(replace(exact(), confidence=torch.zeros(HEIGHT, WIDTH)), tmp_path)
    assert (tmp_path / "matches.csv").read_text() == "x,y,x_query,y_query,confidence\n"


@pytest.mark.parametrize(("formats", "message"), [(["flo", "gif"], "'gif'; there are flo, kitti"), ("flo", "list")])
def test_unknown_format(tmp_path, formats, message):
    with pytest.raises(ValueError, match=message):
        save_result(exact(), tmp_path / "new", formats=formats)
    assert not list(tmp_path.iterdir())


def test_flow_that_a_format_cannot_hold(tmp_path):
    with pytest.raises(ValueError, match="KITTI"):
        save_result(replace(exact(), flow=exact().flow + 600), tmp_path, formats=["kitti"])
    assert not list(tmp_path.iterdir())


def test_folder_never_mixes_two_results(tmp_path):
    save_result(exact(), tmp_path, formats=["npz"])
    (tmp_path / "mine.txt").write_text("mine")
    save_result(exact(), tmp_path, formats=["flo"])
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"mine.txt"}


def test_full_disk_leaves_whole_files_and_no_mark(tmp_path, monkeypatch):
    save_result(exact(), tmp_path)
    rename = os.replace

    def replace_until_matches(source, target):
        if os.path.basename(target) == "matches.png":
            raise OSError(errno.ENOSPC, "No space left on device", source, None, target)
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace_until_matches)
    with pytest.raises(OSError, match="No space"):
        save_result(exact(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES - {"done.json"}
    assert read_image(tmp_path / "matches.png").shape == (HEIGHT, 2 * WIDTH + 8, 3)
