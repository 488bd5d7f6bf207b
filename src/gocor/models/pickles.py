"""Files of `torch.save`, read without running any code that is in them."""

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from ..utils.archives import open_zip
from ..utils.errors import InputError
from ..utils.files import open_file
from ..utils.limits import check_bytes


def load_pickle(path: Path) -> Any:
    """Content of a file of `torch.save`: tensors and plain data, on the CPU. Anything else is an error."""
    with open_file(path) as file:
        if zipfile.is_zipfile(file):
            with open_zip(file) as archive:  # Its members may be packed.
                check_bytes(sum(member.file_size for member in archive.infolist()), str(path))
        file.seek(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns about old pickle protocols
                return torch.load(file, map_location="cpu", weights_only=True)
        except MemoryError:
            raise
        except Exception:  # a damaged file can raise anything
            raise InputError(
                f"{path} is not a checkpoint, or it holds more than tensors and cannot be read safely"
            ) from None
