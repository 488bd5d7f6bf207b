"""Lists of your own pairs."""

import json

import numpy as np
import pytest

from gocor.data.datasets import open_dataset

from .samples import HEIGHT, SHIFT, WIDTH, mask, put, write_sample


@pytest.fixture
def folder(tmp_path):
    write_sample("manifest", tmp_path)
    return tmp_path


def test_csv(folder):
    dense, sparse, planar = open_dataset("manifest", folder / "pairs.csv")
    assert (dense.name, sparse.name, planar.name) == ("dense", "sparse", "a3-b3")
    assert dense.flow.shape == (HEIGHT, WIDTH, 2)
    assert sparse.points.tolist() == [[10, 12, 10 + SHIFT[0], 12 + SHIFT[1]], [20, 30.5, 25, 27.5]]
    assert planar.homography[0, 2] == SHIFT[0]


def test_json_with_values_in_it_and_masks(folder):
    half = np.arange(WIDTH)[None] < WIDTH // 2
    put(folder / "known.png", mask(np.repeat(half, HEIGHT, 0)))
    put(folder / "hidden.png", mask(np.repeat(~half, HEIGHT, 0)))
    rows = [
        {"reference": "a1.png", "query": "b1.png", "points": [[1, 2, 3, 4]], "group": "one"},
        {"reference": "a2.png", "query": "b2.png", "homography": [[1, 0, 5], [0, 1, -3], [0, 0, 1]]},
        {"reference": "a3.png", "query": "b3.png", "flow": "1.flo", "valid": "known.png", "occluded": "hidden.png"},
    ]
    (folder / "pairs.json").write_text(json.dumps(rows))
    sparse, planar, dense = open_dataset("manifest", folder / "pairs.json")
    assert sparse.group == "one"
    assert sparse.points.tolist() == [[1, 2, 3, 4]]
    assert planar.flow[0, 0].tolist() == [5, -3]
    assert np.array_equal(dense.valid, np.repeat(half, HEIGHT, 0))
    assert np.array_equal(dense.occluded, ~dense.valid)
    assert not dense.flow[~dense.valid].any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reference,query\na1.png,b1.png\n", "give one of flow, points, homography, got none"),
        ("reference,query,flow,points\na1.png,b1.png,1.flo,2.csv\n", "got flow and points"),
        ("reference,query,depth\na1.png,b1.png,1.flo\n", "no column 'depth'"),
        ("reference,flow\na1.png,1.flo\n", "query must be the path of an image"),
        ("reference,query,flow\na1.png,b1.png\n", r"row 2: expected 3 values \(reference,query,flow\), got 2"),
        ("reference,query,flow\n", "lists no pairs"),
        ("reference,query,flow\na1.png,b1.png,1.flo\na1.png,b1.png,1.flo\n", "a second pair is named 'a1-b1'"),
        ("reference,query,points,occluded\na1.png,b1.png,2.csv,b1.png\n", "occluded can only be given with flow"),
    ],
)
def test_errors_are_one_line(folder, text, message):
    (folder / "bad.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        open_dataset("manifest", folder / "bad.csv")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"points": [[1, 2, 3]]}, "rows of four finite numbers"),
        ({"points": [[1, 2, 3, None]]}, "rows of four finite numbers"),
        ({"homography": [[1, 0, 0], [0, 1, 0]]}, "nine finite numbers"),
        ({"homography": [[1, 0, 0], [1, 0, 0], [0, 0, 1]]}, "cannot be inverted"),
        ({"homography": "1.flo"}, "nine finite numbers"),
        ({"points": "3.txt"}, "must begin with a line of the columns x,y,x_query,y_query"),
    ],
)
def test_wrong_ground_truth_is_an_error_when_it_is_read(folder, row, message):
    (folder / "bad.json").write_text(json.dumps([{"reference": "a1.png", "query": "b1.png", **row}]))
    with pytest.raises(ValueError, match=message):
        open_dataset("manifest", folder / "bad.json")[0]


@pytest.mark.parametrize(("name", "text"), [("a.json", "{"), ("b.json", "{}"), ("c.json", "[1]"), ("d.txt", "")])
def test_wrong_files(folder, name, text):
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        open_dataset("manifest", folder / name)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"flow": 1}, "flow must be text, got 1"),
        ({"flow": "a\0b"}, "flow must be text, got"),
        ({"flow": "1.flo", "valid": [1]}, "valid must be text"),
        ({"points": {"x": 1}}, "points must be a path or a list"),
        ({"points": [[10**400, 1, 2, 3]]}, "points must be rows of four finite numbers"),
        ({"homography": 3}, "homography must be a path or a list"),
        ({"homography": [[1e308] * 3] * 3}, "the homography cannot be inverted"),
        ({"flow": "1.flo", "name": "\ud800"}, "name must be text or a number"),
        ({"flow": "1.flo", "group": ["a"]}, "group must be text or a number"),
    ],
)
def test_json_values_of_wrong_types(folder, values, message):
    (folder / "pairs.json").write_text(json.dumps([{"reference": "a1.png", "query": "b1.png", **values}]))
    with pytest.raises(ValueError, match=message) as error:
        open_dataset("manifest", folder / "pairs.json")[0]
    assert "\n" not in str(error.value)


def test_nested_json(folder):
    (folder / "pairs.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"pairs\.json is not a JSON file: it is nested too deeply"):
        open_dataset("manifest", folder / "pairs.json")
