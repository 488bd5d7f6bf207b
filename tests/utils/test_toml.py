"""What is written as TOML is read back by the standard library."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gocor.utils.toml import to_toml

text = st.text(st.characters(exclude_categories=["Cs"]))  # a lone surrogate is no character
scalars = text | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
flat = st.dictionaries(text, scalars | st.lists(scalars), max_size=4)


@given(st.dictionaries(text, scalars | st.lists(scalars) | flat | st.lists(flat, min_size=1, max_size=3), max_size=5))
def test_round_trip(values):
    assert tomllib.loads(to_toml(values)) == values


def test_nested_tables():
    values = {"a": 1, "runs": [{"x.y": 0.5, "scores": {"é": {"deep": [1, 2]}}}, {"x.y": 1e-12}], "b": True}
    assert tomllib.loads(to_toml(values)) == values
    assert tomllib.loads(to_toml({"a": "\x7f"})) == {"a": "\x7f"}


def test_none_is_left_out_and_what_has_no_finite_value_is_refused():
    assert to_toml({"a": None, "b": (1, 2)}) == "b = [1, 2]\n"
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_toml({"a": float("inf")})
