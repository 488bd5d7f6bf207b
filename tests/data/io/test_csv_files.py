"""CSV files."""

import pytest

from gocor.data.io import read_csv
from gocor.utils.errors import InputError


def saved(folder, content):
    path = folder / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_rows_by_column_with_their_numbers(tmp_path):
    path = saved(tmp_path, '\ufeffname, XA ,"Other, one"\n\na, 1 ,"x, y"\n , ,\nb,2,\n')
    first, second = read_csv(path, ("XA", "name"))
    assert first == (3, {"name": "a", "XA": "1", "other, one": "x, y"})
    assert second == (5, {"name": "b", "XA": "2", "other, one": ""})


def test_a_header_alone_has_no_rows(tmp_path):
    assert read_csv(saved(tmp_path, "a,b\n")) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,c\n1,2\n", r"must begin with a line of the columns a,b; b is missing in \['a', 'c'\]"),
        ("\ufeff", "is empty"),
        ("a,b\n1\n", r"row 2: expected 2 values \(a,b\), got 1"),
        ("a,b\n\n1,2,3\n", "row 3: expected 2 values"),
        ('a,b\n"1,2\n', "is not a CSV file in UTF-8"),
        (b"a,b\n\xff,2\n", "is not a CSV file in UTF-8"),
        ("", "is empty"),
    ],
)
def test_errors_name_the_file_and_the_row(tmp_path, content, message):
    path = saved(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read_csv(path, ("a", "b"))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
