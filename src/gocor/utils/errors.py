"""Errors about a user's input: arguments, files, data. The `gocor` command prints them as one line."""


class GOCorError(Exception):
    """Base class of all errors about a user's input or data; any other error is a bug of this package."""


class InputError(GOCorError, ValueError):
    """A value, a file or data cannot be used."""


class InputTypeError(GOCorError, TypeError):
    """An argument has the wrong type."""


def is_user_error(error: BaseException) -> bool:
    """Whether an error comes from the input or the machine, so that its message is all that a user needs."""
    return isinstance(error, (GOCorError, OSError)) or is_out_of_memory(error)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the CPU or of the GPU was too small."""
    if isinstance(error, RuntimeError):
        import torch  # a RuntimeError about memory is torch's, which is loaded by then

        # On the CPU, torch raises a plain RuntimeError.
        return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError)
