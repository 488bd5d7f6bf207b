"""Zip files. The size of a member is compared with the limit of `limits` before it is unpacked."""

import lzma
import os
import struct
import zipfile
import zlib
from typing import BinaryIO

from .errors import InputError
from .files import PathLike, check_file
from .limits import check_bytes

MAX_DEFLATE = 1032  # Deflate cannot compress by a larger factor: a header that promises more data is wrong.
PIECE = 4096  # bytes; bzip2 packs at most 90 MB into as many

# What `zipfile` raises for damaged, encrypted or unknown content. NotImplementedError is a RuntimeError.
ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
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
        if info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            if info.file_size > MAX_DEFLATE * max(info.compress_size, 1):
                raise InputError(f"{name} promises {info.file_size} bytes out of {info.compress_size}")
            return archive.read(info)  # never more than `file_size` bytes
        with archive.open(info) as stream:  # At once, `zipfile` would unpack all that other methods have packed.
            return b"".join(iter(lambda: stream.read(PIECE), b""))
    except InputError:
        raise
    except ERRORS as error:
        raise InputError(f"{name} cannot be unpacked ({_reason(error)}): copy the archive again") from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
