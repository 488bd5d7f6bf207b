"""Zip files. The size of a member is compared with the limit of `limits` before it is unpacked."""

import os
import struct
import zipfile
import zlib
from typing import BinaryIO

from .errors import InputError
from .files import PathLike, check_file
from .limits import check_bytes

MAX_DEFLATE = 1032  # Deflate cannot compress by a larger factor: a header that promises more data is wrong.
# `zipfile` unpacks members of other methods whole, whatever size they promise; bzip2 packs gigabytes into 4 KiB.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# What `zipfile` raises for damaged, encrypted or unknown content. NotImplementedError is a RuntimeError.
ERRORS = (
    zipfile.BadZipFile, zlib.error, struct.error,
    EOFError, OSError, RuntimeError, ValueError, LookupError, OverflowError,
)  # fmt: skip


def open_zip(file: PathLike | BinaryIO) -> zipfile.ZipFile:
    """Open a zip file, of any size, whose members are going to be read by `read_member`."""
    if isinstance(file, (str, os.PathLike)):
        check_file(file, limited=False)
    try:
        return zipfile.ZipFile(file)
    except ERRORS as error:
        raise InputError(f"the archive is damaged ({_reason(error)}), copy it again") from None


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Unpack one member of a zip file into memory."""
    try:
        info = archive.getinfo(name)
        check_bytes(info.file_size, name)
        if info.compress_type not in METHODS:
            raise InputError(f"{name} is packed by method {info.compress_type}: pack it again, by deflate")
        packed, size = info.compress_size, info.file_size
        if size > MAX_DEFLATE * max(packed, 1) or packed > 2 * size + 1024:
            raise InputError(f"{name} promises {size} bytes out of {packed}, the archive is damaged")
        return archive.read(info)  # never more than `file_size` bytes
    except InputError:
        raise
    except ERRORS as error:
        raise InputError(f"{name} cannot be unpacked ({_reason(error)}): copy the archive again") from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
