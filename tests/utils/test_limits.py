"""The limit on decoded sizes."""

import pytest

from gocor.utils.limits import DEFAULT, VARIABLE, check_bytes, check_pixels, max_bytes


@pytest.mark.parametrize(
    ("text", "expected"), [("", DEFAULT), ("1000", 1000), ("3K", 3072), (" 2m ", 2 << 20), ("4G", 4 << 30)]
)
def test_the_variable_sets_the_limit(monkeypatch, text, expected):
    monkeypatch.setenv(VARIABLE, text)
    assert max_bytes() == expected


@pytest.mark.parametrize("text", ["0", "-1", "much", "1.5G", "9" * 30, "٣"])
def test_other_values_are_errors(monkeypatch, text):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match="GOCOR_MAX_BYTES must be a number of bytes such as 4294967296 or 4G, got"):
        max_bytes()


def test_messages_say_how_to_raise_the_limit(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1K")
    check_bytes(1024, "x")
    with pytest.raises(ValueError, match="x takes 1,025 bytes, the limit is 1,024: set GOCOR_MAX_BYTES to raise it"):
        check_bytes(1025, "x")
    check_pixels(16, 8, 3)  # counts 8 bytes a pixel
    check_pixels(8, 8, 16)
    for width, height, depth in ((17, 8, 3), (8, 9, 16)):
        with pytest.raises(ValueError, match=f"{width}×{height} pixels is too large: .*set GOCOR_MAX_BYTES"):
            check_pixels(width, height, depth)
    for width, height in ((0, 4), (4, -1), (1_000_001, 1)):
        with pytest.raises(ValueError, match=f"promises {width}×{height} pixels, a side must have 1 to 1,000,000"):
            check_pixels(width, height)
