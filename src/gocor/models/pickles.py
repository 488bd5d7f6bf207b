"""Files of `torch.save`, read without running any code that is in them."""

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from ..utils.archives import open_zip
from ..utils.errors import InputError
from ..utils.files import read_bytes
from ..utils.limits import check_bytes


def load_pickle(path: Path) -> Any:
    """Content of a file of `torch.save`: tensors and plain data, on the CPU. Anything else is an error."""
    data = read_bytes(path)
    stream = io.BytesIO(data)  # for a file, torch would allocate any length that a damaged header states
    if zipfile.is_zipfile(stream):
        with open_zip(stream) as archive:  # Its members may be packed.
            check_bytes(sum(member.file_size for member in archive.infolist()), str(path))
    stream.seek(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about old pickle protocols
            return torch.load(stream, map_location="cpu", weights_only=True)
    except Exception:  # a damaged file can raise anything, a MemoryError for a wrong length included
        why = "is damaged or not a checkpoint, or it holds more than tensors and cannot be read safely"
        raise InputError(f"{path} {why}") from None
