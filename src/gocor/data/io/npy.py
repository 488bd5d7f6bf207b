"""Arrays of numbers in NumPy's `.npy` format.

NumPy's own reader evaluates the header as a Python expression, which fails in many ways for a damaged file.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...utils.errors import InputError

MAGIC = b"\x93NUMPY"
LENGTHS = {1: 2, 2: 4, 3: 4}  # bytes of the field with the header's length, by version
DESCR = re.compile(rb"""['"]descr['"]\s*:\s*['"]([<>|=]?[?biuf]\d{0,2})['"]""")
ORDER = re.compile(rb"""['"]fortran_order['"]\s*:\s*(True|False)""")
SHAPE = re.compile(rb"""['"]shape['"]\s*:\s*\(([\d\s,]{0,200})\)""")
MAX_AXES = 8


def parse_npy(data: bytes, name: str) -> NDArray[Any]:
    """The array of booleans or real numbers that a `.npy` file holds, which is not copied.

    Args:
        data: content of the file.
        name: name of the file, for errors.
    """
    if not data.startswith(MAGIC) or len(data) < 12 or data[6] not in LENGTHS:
        raise InputError(f"{name} is not a NumPy array")
    start = 8 + LENGTHS[data[6]]
    end = start + int.from_bytes(data[8:start], "little")
    header = data[start : min(end, start + 10_000)]
    found = [pattern.search(header) for pattern in (DESCR, ORDER, SHAPE)]
    if found[0] is None or found[1] is None or found[2] is None:
        raise InputError(f"{name} has a header that is damaged, or holds other values than numbers")
    try:
        dtype = np.dtype(found[0][1].decode())
        shape = tuple(int(side) for side in found[2][1].split(b",") if side.strip())
    except (TypeError, ValueError):
        raise InputError(f"{name} has a damaged header") from None
    promised = dtype.itemsize
    for side in shape:
        promised *= side
    if len(shape) > MAX_AXES or len(data) - end != promised:
        raise InputError(f"{name} does not hold the {dtype} {shape} that its header promises")
    if not promised:
        raise InputError(f"{name} holds an empty array, {dtype} {shape}")
    array = np.frombuffer(data, dtype, offset=end)
    return array.reshape(shape, order="F" if found[1][1] == b"True" else "C")
