import sys

import pytest

from .__main__ import fuzz
from .corpus import CORPUS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the memory limit needs Linux")


def test_damaged_files_are_read_or_refused_with_one_line():
    counts, failures = fuzz(len(CORPUS) + 150, seed=1, verbose=False)
    assert not failures, "\n".join(failures)
    assert counts["read"] > 20  # most mutations of pixels are harmless
    assert counts["refused"] > 60
