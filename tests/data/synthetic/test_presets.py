"""Presets: their names, and errors about wrong settings."""

from dataclasses import replace

import pytest

from gocor.data.synthetic import PRESETS, Colour, Crop, Motion, Objects, Preset, get_preset


def test_names():
    assert set(PRESETS) == {"static", "dynamic", "flow", "parallax", "fast", "static-published", "dynamic-published"}
    assert get_preset("flow") is PRESETS["flow"]
    with pytest.raises(ValueError, match="there are static, dynamic"):
        get_preset("chairs")


def test_a_custom_preset():
    mine = replace(PRESETS["static"], colour=None, crop=Crop(tilt=45))
    assert get_preset(mine) is mine
    assert mine.motions == PRESETS["static"].motions


def test_published_presets_do_not_change_colours():
    assert PRESETS["static-published"].colour is None
    assert PRESETS["dynamic-published"].colour is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Preset(()), "needs motions"),
        (lambda: Preset((Motion(weight=0),)), "needs motions"),
        (lambda: Preset((Motion(stretch=(1.2, 0.8)),)), "stretch must be a range"),
        (lambda: Preset((Motion(),), crop=Crop(share=(0.5, 1.5))), "share of a crop"),
        (lambda: Preset((Motion(),), colour=Colour(blur=5)), "blur must lie"),
        (lambda: Preset((Motion(),), objects=Objects(count=(-1, 2))), "count of objects"),
        (lambda: Preset((Motion(),), objects=Objects(count=(4, 2))), "count must be a range"),
    ],
)
def test_wrong_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()
