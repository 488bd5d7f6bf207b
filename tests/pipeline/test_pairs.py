"""The pairs that `gocor match` is given."""

from pathlib import Path

import pytest

from gocor.pipeline.pairs import Pair, find_pairs


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "must begin with a line of the columns reference,query; reference is missing"),
        ("reference,query\n", "lists no pairs"),
        ("reference,query\na.png\n", r"row 2: expected 2 values \(reference,query\), got 1"),
        ("reference,query\na.png,b.png,c.png\n", "row 2"),
        ("reference,query\na.png,\n", "row 2: reference and query must both be given"),
        ("reference,query\na.png,b.png\na.png,b.png\n", "row 3: a second pair is named 'a-b'"),
        ("reference,query,name\na.png,b.png,../c\n", "the name '../c' cannot be used as the name of a folder"),
        (
            "reference,query,name\na.png,b.png," + 86 * "語" + "\n",
            "cannot be used as the name of a folder",
        ),  # 258 bytes
        (b"\xff\xfe\x00", "is not a CSV file in UTF-8"),
        ("", "is empty"),
    ],
)
def test_bad_lists(tmp_path, content, message):
    file = tmp_path / "pairs.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as caught:
        find_pairs(file, None)
    assert str(caught.value).startswith(str(file))


def test_paths_are_relative_to_the_list(tmp_path):
    elsewhere = Path("/elsewhere/b.png").absolute()
    (tmp_path / "pairs.csv").write_text(f"reference,query,name\nx/a.png,{elsewhere},mine\na.png,a.png,\n")
    first, second = find_pairs(tmp_path / "pairs.csv", None)
    assert first == Pair(tmp_path / "x" / "a.png", elsewhere, "mine")
    assert second.name == "a-a"


def test_folders_are_paired_by_name(tmp_path):
    for name in ("one/b.png", "one/a.JPG", "one/._a.png", "one/readme", "two/a.tif", "two/b.png", "two/c.png/d.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    pairs = find_pairs(tmp_path / "one", tmp_path / "two")
    assert [(pair.reference.name, pair.query.name, pair.name) for pair in pairs] == [
        ("a.JPG", "a.tif", "a"),
        ("b.png", "b.png", "b"),
    ]
