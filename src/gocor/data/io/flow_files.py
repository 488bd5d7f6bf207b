"""Flow files: Middlebury `.flo`, KITTI `.png`, `.pfm` and `.npz`; the suffix determines the format.

In memory, a flow is `(2, H, W)` float32, x then y in pixels, with a mask `(H, W)` of the pixels whose flow is known.
Unknown flow is 0. A file's size is compared with its header before anything is allocated. Files are written whole or
not at all.
"""

import io
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...utils.archives import open_zip, read_member
from ...utils.arrays import Flow, Mask, known_flow
from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes, write_bytes_atomically
from .images import decode, encode
from .npy import parse_npy

FLO_MAGIC = struct.pack("<f", 202021.25)
UNKNOWN = 1e10  # Middlebury's marker of unknown flow
KITTI_SCALE, KITTI_OFFSET = 64.0, 2**15
PFM_HEADER = re.compile(rb"(P[Ff])\s+(\d{1,10})\s+(\d{1,10})\s+([-+]?[0-9.]+(?:[eE][-+]?\d+)?)[ \t]*\r?\n")


def read_flow(path: PathLike) -> tuple[Flow, Mask]:
    """Read a flow `(2, H, W)` float32 and the mask `(H, W)` bool of the pixels whose flow is known.

    - `.flo`: values beyond 1e9 and NaN are unknown.
    - `.png`: KITTI's 16-bit format with a resolution of 1/64 pixel.
    - `.pfm`: three channels are x, y and validity, which is ignored if it is zero everywhere (as in FlyingThings3D).
      One channel is a disparity d, that is, the flow (-d, 0). Infinite values and NaN are unknown. The scale in the
      header is not applied, as is common.
    - `.npz`: the arrays `flow` and, optionally, `valid`.

    A missing file raises a FileNotFoundError, a file with other content an InputError.
    """
    read, _ = _format(path)
    data = read_bytes(path)
    try:
        with np.errstate(invalid="ignore"):  # NaN
            flow, valid = read(data)
    except ValueError as error:
        raise InputError(f"cannot read a flow from {path}: {error}") from None
    valid = valid & known_flow(flow)
    return np.where(valid, flow, np.float32(0)), valid


def write_flow(path: PathLike, flow: NDArray[Any], valid: NDArray[Any] | None = None, **further: NDArray[Any]) -> None:
    """Write a flow in the format of the path's suffix: `.flo`, `.png` (KITTI), `.pfm` or `.npz`.

    Args:
        path: the file; on failure nothing is left there.
        flow: `(2, H, W)`; written as float32, or rounded to 1/64 pixel in KITTI's format.
        valid: `(H, W)` bool, the pixels whose flow is known; by default those whose flow is finite and at most 1e9.
        **further: arrays that an `.npz` file holds beside these two; other formats have no place for them.
    """
    _, write = _format(path)
    if further and write is not _write_npz:
        raise InputError(f"only .npz files hold further arrays ({', '.join(further)}), got {path}")
    try:
        flow, valid = _checked(flow, valid)
        data = write(flow, valid, **further)
    except ValueError as error:
        raise InputError(f"cannot write {path}: {error}") from None
    write_bytes_atomically(path, data)


def _format(path: PathLike) -> tuple[Callable[[bytes], tuple[Flow, Mask]], Callable[..., bytes]]:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"the suffix of a flow file must be one of {', '.join(FORMATS)}, got {path}")
    return FORMATS[suffix]


def _checked(flow: NDArray[Any], valid: NDArray[Any] | None) -> tuple[Flow, Mask]:
    """The flow as float32, zero where it is not valid, and the mask."""
    if not isinstance(flow, np.ndarray) or flow.ndim != 3 or flow.shape[0] != 2 or flow.size == 0:
        got = str(flow.shape) if isinstance(flow, np.ndarray) else type(flow).__name__
        raise InputError(f"flow must be an array (2, H, W), got {got}")
    if flow.dtype.kind not in "fiu":
        raise InputError(f"flow must hold real numbers, got {flow.dtype}")
    known = known_flow(flow)
    if valid is None:
        valid = known
    if not isinstance(valid, np.ndarray) or valid.dtype != np.bool_ or valid.shape != flow.shape[1:]:
        got = f"{valid.dtype} {valid.shape}" if isinstance(valid, np.ndarray) else type(valid).__name__
        raise InputError(f"valid must be a bool array {flow.shape[1:]}, got {got}")
    wrong = (valid & ~known).sum()
    if wrong:
        raise InputError(f"{wrong} pixels are marked valid, but their flow is NaN, infinite or beyond 1e9")
    return np.where(valid, flow, 0).astype(np.float32), valid


def _check_size(found: int, header: int, width: int, height: int, pixel: int) -> None:
    """Raise unless a file of `found` bytes holds exactly its header and width × height pixels of `pixel` bytes."""
    if width < 1 or height < 1:
        raise InputError(f"its header promises {width}×{height} pixels, the file is damaged")
    expected = header + width * height * pixel
    if found != expected:
        raise InputError(f"{width}×{height} pixels take {expected} bytes, the file has {found}: copy it again")


def _read_flo(data: bytes) -> tuple[Flow, Mask]:
    if data[:4] != FLO_MAGIC:
        raise InputError("it does not begin with the magic number 202021.25 of .flo files")
    width, height = struct.unpack("<ii", data[4:12].ljust(8, b"\0"))
    _check_size(len(data), 12, width, height, 8)
    values = np.frombuffer(data, "<f4", offset=12).reshape(height, width, 2)
    flow = values.transpose(2, 0, 1).astype(np.float32)
    return flow, known_flow(flow)


def _write_flo(flow: Flow, valid: Mask) -> bytes:
    values = np.where(valid, flow, UNKNOWN).transpose(1, 2, 0).astype("<f4")
    return FLO_MAGIC + struct.pack("<ii", valid.shape[1], valid.shape[0]) + values.tobytes()


def _read_kitti(data: bytes) -> tuple[Flow, Mask]:
    pixels, _ = decode(data)  # Flow has no orientation.
    if pixels.dtype != np.uint16 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise InputError(f"KITTI flow is a 16-bit RGB PNG, this one holds {pixels.dtype} {pixels.shape}")
    flow = (pixels[..., [2, 1]].astype(np.float32) - KITTI_OFFSET) / KITTI_SCALE  # channels are B, G, R
    return flow.transpose(2, 0, 1), pixels[..., 0] > 0


def _write_kitti(flow: Flow, valid: Mask) -> bytes:
    values = np.rint(flow.astype(np.float64) * KITTI_SCALE) + KITTI_OFFSET  # (2, H, W)
    if values.min() < 0 or values.max() > 2**16 - 1:
        worst = np.abs(flow).max()
        raise InputError(f"KITTI's PNG holds flow from -512 to 511.98 pixels, got {worst:.6g}: write .flo instead")
    pixels = np.stack([np.ones_like(values[0]), values[1], values[0]], axis=-1) * valid[..., None]
    return encode(pixels.astype(np.uint16))


def _read_pfm(data: bytes) -> tuple[Flow, Mask]:
    header = PFM_HEADER.match(data)
    if header is None:
        raise InputError("it does not begin with a PFM header: PF or Pf, width, height, scale")
    channels = 3 if header[1] == b"PF" else 1
    width, height = int(header[2]), int(header[3])
    _check_size(len(data), header.end(), width, height, 4 * channels)
    order = "<f4" if header[4].startswith(b"-") else ">f4"
    rows = np.frombuffer(data, order, offset=header.end()).reshape(height, width, channels)
    values = rows[::-1].transpose(2, 0, 1).astype(np.float32)  # (C, H, W); the file begins with the bottom row
    if channels == 1:
        return np.concatenate([-values, np.zeros_like(values)]), np.isfinite(values[0])
    flow, third = values[:2], values[2]
    return flow, known_flow(flow) & (third > 0 if third.any() else True)


def _write_pfm(flow: Flow, valid: Mask) -> bytes:
    height, width = valid.shape
    # Unknown flow is infinite, too, because a mask that is zero everywhere is read as an unused channel.
    values = np.concatenate([np.where(valid, flow, np.inf), valid[None]]).transpose(1, 2, 0)
    return f"PF\n{width} {height}\n-1.0\n".encode() + values[::-1].astype("<f4").tobytes()


def _read_npz(data: bytes) -> tuple[Flow, Mask]:
    with open_zip(io.BytesIO(data)) as archive:
        names = archive.namelist()
        if "flow.npy" not in names:
            raise InputError(f"it holds no array 'flow', only {', '.join(names)[:100] or 'nothing'}")
        flow = parse_npy(read_member(archive, "flow.npy"), "flow.npy")
        if flow.ndim != 3 or flow.shape[0] != 2 or flow.size == 0 or flow.dtype.kind not in "fiu":
            raise InputError(f"'flow' must be a numeric array (2, H, W), got {flow.dtype} {flow.shape}")
        if "valid.npy" in names:
            valid = parse_npy(read_member(archive, "valid.npy"), "valid.npy")
        else:
            valid = np.ones(flow.shape[1:], np.bool_)
    if valid.dtype != np.bool_ or valid.shape != flow.shape[1:]:
        raise InputError(f"'valid' must be a bool array {flow.shape[1:]}, got {valid.dtype} {valid.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        return flow.astype(np.float32), valid


def _write_npz(flow: Flow, valid: Mask, **further: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, flow=flow, valid=valid, **further)
    return stream.getvalue()


FORMATS: dict[str, tuple[Callable[[bytes], tuple[Flow, Mask]], Callable[..., bytes]]] = {
    ".flo": (_read_flo, _write_flo),
    ".png": (_read_kitti, _write_kitti),
    ".pfm": (_read_pfm, _write_pfm),
    ".npz": (_read_npz, _write_npz),
}
