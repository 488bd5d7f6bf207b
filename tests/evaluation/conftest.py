"""Settings of these tests."""

import pytest


@pytest.fixture(autouse=True)
def _small_plots(monkeypatch):
    """Plots are drawn at half their size, in a fraction of the time."""
    monkeypatch.setattr("gocor.evaluation.plots.DPI", 50)
