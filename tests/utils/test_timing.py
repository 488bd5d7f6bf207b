"""Timing of variants in turns."""

import pytest

from gocor.utils.timing import compare


def test_variants_take_turns_and_the_median_counts(monkeypatch):
    order = []
    clock = iter([*[0, 1e-3] * 2, *[0, 9e-3] * 2, *[0, 2e-3] * 2])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    times = compare({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, "cpu", 3)
    assert "".join(order) == "ab" + "ababab"  # a warm-up call each, then turns
    assert times == pytest.approx({"a": 2, "b": 2})
