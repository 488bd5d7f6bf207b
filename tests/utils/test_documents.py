"""JSON and TOML text: one line for whatever the parsers raise."""

import pytest

from gocor.utils.documents import parse_json, parse_toml
from gocor.utils.errors import InputError


def test_plain_data():
    assert parse_json(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert parse_toml(b"a = [1, 2]\n[b]\nc = true\n") == {"a": [1, 2], "b": {"c": True}}
    assert len(parse_toml("a = [" + 5000 * "0.5, " + "]")["a"]) == 5000


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_json, b"[" * 100_000, "not a JSON file: it is nested too deeply"),
        (parse_json, b"1" + b"0" * 5000, "not a JSON file: a number has too many digits"),
        (parse_json, b'"\xff"', "not a JSON file: .* can't decode byte 0xff"),
        (parse_json, b"{", "not a JSON file: Expecting property name"),
        (parse_toml, b"a = " + b"[" * 10_000, "not a TOML file: it is nested too deeply"),
        (parse_toml, b"a." * 100_000 + b"a = 1", "not a TOML file: it is nested too deeply"),
        (parse_toml, b"[" + b'"a" . ' * 100_000 + b"a]", "not a TOML file: it is nested too deeply"),
        (parse_toml, b"a = 1" + b"0" * 5000, "not a TOML file: a number has too many digits"),
        (parse_toml, b"\xff", "not a TOML file: .* can't decode byte 0xff"),
        (parse_toml, b"a", "not a TOML file: Expected"),
    ],
)
def test_errors(parse, text, message):
    with pytest.raises(InputError, match=message) as error:
        parse(text)
    assert "\n" not in str(error.value)
