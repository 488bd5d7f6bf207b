"""User errors print one line; bugs keep their traceback."""

import warnings

import pytest
import torch

from gocor import GOCorError
from gocor.cli.errors import describe, warnings_as_lines
from gocor.data.datasets import MissingDataError
from gocor.utils.errors import InputError, InputTypeError, is_user_error

MEMORY = "not enough memory: try smaller images (--max-size, --size) or a smaller --batch"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("size must be at least 16, got 5"), "size must be at least 16, got 5"),
        (InputTypeError("an image must be an array, got list"), "an image must be an array, got list"),
        (MissingDataError("KITTI is missing"), "KITTI is missing"),
        (FileNotFoundError("a.png does not exist"), "a.png does not exist"),
        (PermissionError(13, "Permission denied", "a.png"), "a.png: Permission denied"),
        (OSError(28, "No space left on device", "tmp", None, "a.png"), "a.png: No space left on device"),
        (MemoryError(), MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory"), MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), MEMORY),
    ],
)
def test_user_errors_have_a_line(error, line):
    assert is_user_error(error)
    assert describe(error) == line


@pytest.mark.parametrize("error", [ValueError("a"), TypeError("b"), RuntimeError("c"), KeyError("d"), AssertionError()])
def test_bugs_are_not_user_errors(error):
    assert not is_user_error(error)


def test_input_errors_can_be_caught_in_either_way():
    assert issubclass(InputError, GOCorError)
    assert issubclass(InputError, ValueError)
    assert issubclass(InputTypeError, TypeError)
    assert issubclass(InputTypeError, GOCorError)
    assert issubclass(MissingDataError, FileNotFoundError)


def test_only_warnings_of_the_category_become_lines(capfd):
    with warnings.catch_warnings(record=True) as shown, warnings_as_lines(FutureWarning):
        warnings.simplefilter("always")
        warnings.warn("one", FutureWarning, stacklevel=1)
        warnings.warn("two", UserWarning, stacklevel=1)
    assert capfd.readouterr().err == "gocor: warning: one\n"
    assert [str(warning.message) for warning in shown] == ["two"]
