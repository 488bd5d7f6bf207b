"""Optional packages."""

import json
import sys

import pytest

from gocor.utils.errors import InputError
from gocor.utils.extras import import_extra


def test_an_installed_package_is_imported():
    assert import_extra("json", "video", "this") is json


def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"a\.h5 needs h5py, which is not installed: pip install 'gocor\[hdf5\]'"):
        import_extra("h5py", "hdf5", "a.h5")
