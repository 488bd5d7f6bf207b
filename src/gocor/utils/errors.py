"""Errors about what a user gave: arguments, files, data. The `gocor` command prints them as one line."""


class GOCorError(Exception):
    """Base class of all errors about a user's input or data; any other error is a bug of this package."""


class InputError(GOCorError, ValueError):
    """A value, a file or data cannot be used."""


class InputTypeError(GOCorError, TypeError):
    """An argument has the wrong type."""
