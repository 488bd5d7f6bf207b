"""Video files, decoded by PyAV."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..utils.arrays import Picture
from ..utils.errors import InputError
from ..utils.files import check_file, file_stamp
from ..utils.limits import PIXEL, check_pixels, max_bytes
from .clip import Clip

DEFAULT_RATE = Fraction(25)  # frames per second of files that do not state a rate
HD_HEIGHT = 720  # Files of this height or more that name no colour matrix have BT.709, others BT.601.
BT709, BT601, FULL_RANGE, LIMITED_RANGE = 1, 5, 2, 1  # numbers that FFmpeg gives them
MOST_PIXELS = 2**31 - 1  # largest value of FFmpeg's own limit
# FFmpeg's numbers of colour matrices → those of its scaler.
MATRICES = {1: BT709, 4: 4, 5: BT601, 6: BT601, 7: 7, 9: 9, 10: 9}


class VideoFile:
    """A file with a video stream; the first one is read.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        check_file(path, limited=False)
        self.path = path

    def scan(self) -> Clip:
        """See `Source.scan`. All frames are decoded, because the number that a file states may be wrong."""
        ticks: list[int | None] = []
        size: tuple[int, int] | None = None
        with self._open() as (container, stream):
            for frame in self._decode(container, stream):
                size = size or _upright_size(frame)
                self._check_size(frame, size, len(ticks))
                ticks.append(frame.pts)
            rate = stream.average_rate or stream.guessed_rate or DEFAULT_RATE
            base = stream.time_base
            aspect = stream.sample_aspect_ratio or Fraction(1)
            has_audio = bool(container.streams.audio)
        if size is None:
            raise InputError(f"{self.path} holds no frames")
        upright = size == (stream.height, stream.width)
        times, base = _times(ticks, base, rate)
        return Clip(
            height=size[0],
            width=size[1],
            ticks=times,
            time_base=base,
            rate=rate,
            pixel_aspect=aspect if upright else 1 / aspect,
            has_audio=has_audio,
        )

    def frames(self, start: int = 0, only: Collection[int] | None = None) -> Iterator[tuple[int, Picture]]:
        """See `Source.frames`. Frames before `start` are decoded too, because seeking is not exact in all formats."""
        last = None if only is None else max(only, default=-1)
        with self._open() as (container, stream):
            for index, frame in enumerate(self._decode(container, stream)):
                if last is not None and index > last:
                    return
                if index >= start and (only is None or index in only):
                    yield index, to_picture(frame)

    def stamp(self) -> Any:
        """See `Source.stamp`."""
        return file_stamp(self.path)

    def name_of(self, index: int) -> str:
        """See `Source.name_of`: the frame's number."""
        return f"{index:06d}"

    @contextmanager
    def _open(self) -> Iterator[tuple[Any, Any]]:
        av = import_av()
        try:
            container = av.open(str(self.path))
        except (av.FFmpegError, ValueError) as error:
            raise InputError(f"cannot read {self.path}: {_reason(error)}") from None
        with container:
            if not container.streams.video:
                raise InputError(f"{self.path} has no video stream")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            self._bound(stream)
            yield container, stream

    def _bound(self, stream: Any) -> None:
        """Keep frames within the limit of `limits`, also those that are larger than the file says."""
        if stream.width and stream.height:
            try:
                check_pixels(stream.width, stream.height)
            except InputError as error:
                raise InputError(f"cannot read {self.path}: {error}") from None
        most = min(2 * max_bytes() // PIXEL, MOST_PIXELS)  # twice as many, because decoders round sides up
        stream.codec_context.options = {"max_pixels": str(most)}

    def _decode(self, container: Any, stream: Any) -> Iterator[Any]:
        """The frames of a stream; damage is an InputError that names the frame."""
        av = import_av()
        frames = container.decode(stream)
        index = 0
        while True:
            try:
                frame = next(frames)
            except StopIteration:
                return
            except av.FFmpegError as error:
                raise InputError(f"{self.path} is damaged after {index} frames: {_reason(error)}") from None
            yield frame
            index += 1

    def _check_size(self, frame: Any, size: tuple[int, int], index: int) -> None:
        found = _upright_size(frame)
        if found != size:
            expected, got = (f"{width}×{height}" for height, width in (size, found))
            raise InputError(f"{self.path}, frame {index}: frames must have one size, expected {expected}, got {got}")


def import_av() -> Any:
    """PyAV, which the extra `video` installs."""
    try:
        import av
    except ImportError:
        raise InputError("video files need PyAV: pip install 'gocor[video]'") from None
    return av


def to_picture(frame: Any) -> Picture:
    """Convert a frame of PyAV to upright RGB `(H, W, 3)`, by the colour matrix and the range that it is tagged with."""
    matrix = MATRICES.get(frame.colorspace, BT709 if frame.height >= HD_HEIGHT else BT601)
    full = frame.color_range == FULL_RANGE or frame.format.name.startswith("yuvj")
    rgb = frame.reformat(
        format="rgb24",
        src_colorspace=matrix,
        dst_colorspace=matrix,
        src_color_range=FULL_RANGE if full else LIMITED_RANGE,
        dst_color_range=FULL_RANGE,
    ).to_ndarray()
    return np.ascontiguousarray(np.rot90(rgb, _quarter_turns(frame)))


def _quarter_turns(frame: Any) -> int:
    """Counter-clockwise quarter turns that bring a frame upright."""
    return round(frame.rotation / 90) % 4


def _upright_size(frame: Any) -> tuple[int, int]:
    size: tuple[int, int] = (frame.height, frame.width)
    return size[::-1] if _quarter_turns(frame) % 2 else size


def _times(ticks: list[int | None], base: Fraction | None, rate: Fraction) -> tuple[list[int], Fraction]:
    """Ticks from 0 on and their unit; those of a constant rate if a frame has no time or times do not increase."""
    known = [tick for tick in ticks if tick is not None]
    increasing = all(a < b for a, b in pairwise(known))
    if base is None or len(known) != len(ticks) or not increasing:
        return list(range(len(ticks))), 1 / rate
    return [tick - known[0] for tick in known], base


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
