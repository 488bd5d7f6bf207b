"""Packages that gocor's extras install."""

from importlib import import_module
from typing import Any

from .errors import InputError


def import_extra(package: str, extra: str, what: str) -> Any:
    """Import an optional package; if it is missing, an error names the extra to install.

    Args:
        package: name of the package.
        extra: name of the extra of gocor that installs it.
        what: what needs the package, for the error.
    """
    try:
        return import_module(package)
    except ImportError:
        raise InputError(f"{what} needs {package}, which is not installed: pip install 'gocor[{extra}]'") from None
