"""The short version of `make soak`."""

from benchmarks import soak


def test_many_matches_neither_leak_nor_drift():
    found = soak.soak(30)
    assert found.identical
    assert found.last - found.warm <= 2 * soak.ALLOWED_GROWTH  # six matches do not warm up every size


def test_a_leak_and_a_drift_are_failures():
    assert soak.Soak(1000, 500.0, 510.0, True).passed
    assert not soak.Soak(1000, 500.0, 600.0, True).passed
    assert not soak.Soak(1000, 500.0, 500.0, False).passed
