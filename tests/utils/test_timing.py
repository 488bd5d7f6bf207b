"""Timing of variants in turns."""

import pytest

from gocor.utils.timing import Stages, compare, stage


def test_variants_take_turns_and_the_median_counts(monkeypatch):
    order = []
    clock = iter([*[0, 1e-3] * 2, *[0, 9e-3] * 2, *[0, 2e-3] * 2])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    times = compare({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, "cpu", 3)
    assert "".join(order) == "ab" + "ababab"  # a warm-up call each, then turns
    assert times == pytest.approx({"a": 2, "b": 2})


def test_a_stage_inside_another_counts_for_itself_alone(monkeypatch):
    clock = iter([0.0, 1.0, 4.0, 5.0, 7.0, 10.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    stages = Stages()
    with stages.measure("match"):
        for _ in range(2):
            with stage("align"):
                pass
    assert stages.seconds == {"match": 5.0, "align": 5.0}
    with stage("align"):  # nobody measures
        pass
    assert stages.seconds["align"] == 5.0
