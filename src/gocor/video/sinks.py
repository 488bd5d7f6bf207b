"""Where drawn frames go: a video file that is joined from parts, or a folder of images."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..data.io import write_image
from ..utils.arrays import Picture
from ..utils.errors import InputError
from ..utils.files import atomic_path
from .clip import Clip
from .file_source import BT709, FULL_RANGE, LIMITED_RANGE, import_av

VIDEO_SUFFIXES = (".mp4", ".mov", ".mkv")
CODEC = "libx264"
# A constant quality that looks like the original. The macroblock tree is off: on CPUs with AVX-512 it gives
# other bytes from run to run.
ENCODING = {"crf": "18", "preset": "medium", "mbtree": "0"}

Add = Callable[[int, Picture], None]


class Sink(Protocol):
    """Takes drawn frames chunk by chunk, and publishes them when all are there."""

    def chunk(self, chunk: range) -> Any:
        """A context that yields the function which takes the number and the picture of each frame of a chunk."""
        ...

    def publish(self, chunks: Sequence[range]) -> None:
        """Bring the frames of all chunks to the output."""
        ...


class VideoSink:
    """H.264 in the pixel format yuv420p, without B-frames, so that parts can be joined packet by packet.

    Odd widths and heights become even by repeating the last column or row.

    Args:
        output: the file to publish.
        folder: the parts are written here.
        clip: gives the times of the frames.
    """

    def __init__(self, output: Path, folder: Path, clip: Clip) -> None:
        self.output, self.folder, self.clip = output, folder, clip
        if CODEC not in import_av().codecs_available:
            raise InputError(f"this PyAV has no {CODEC} encoder: write a folder of frames, or install PyAV from PyPI")

    @contextmanager
    def chunk(self, chunk: range) -> Iterator[Add]:
        """See `Sink.chunk`."""
        with (
            atomic_path(self._part(chunk)) as path,
            import_av().open(str(path), "w") as container,
        ):
            encoder = _Encoder(container, self.clip, chunk)
            yield encoder.add
            encoder.flush()

    def publish(self, chunks: Sequence[range]) -> None:
        """See `Sink.publish`."""
        av = import_av()
        options = {} if self.output.suffix.lower() == ".mkv" else {"movflags": "faststart"}
        with atomic_path(self.output) as path, av.open(str(path), "w", options=options) as joined:
            stream = None
            for chunk in chunks:
                with av.open(str(self._part(chunk))) as part:
                    source = part.streams.video[0]
                    stream = stream or joined.add_stream_from_template(source)
                    offset = round(self.clip.ticks[chunk.start] * self.clip.time_base / source.time_base)
                    for packet in part.demux(source):
                        if packet.dts is None:  # marks the end
                            continue
                        packet.pts, packet.dts = packet.pts + offset, packet.dts + offset
                        packet.stream = stream
                        joined.mux(packet)

    def _part(self, chunk: range) -> Path:
        return self.folder / f"part-{chunk.start:06d}.mp4"


class _Encoder:
    """Encodes the frames of one chunk into a container; times count from the first of them."""

    def __init__(self, container: Any, clip: Clip, chunk: range) -> None:
        self.container, self.clip, self.chunk = container, clip, chunk
        self.first = clip.ticks[chunk.start]
        self.stream: Any = None

    def add(self, index: int, picture: Picture) -> None:
        """Encode one frame."""
        picture = even(picture)
        if self.stream is None:
            self.stream = self._new_stream(picture.shape[0], picture.shape[1])
        frame = import_av().VideoFrame.from_ndarray(picture, format="rgb24")
        frame = frame.reformat(
            format="yuv420p",
            dst_colorspace=BT709,
            src_color_range=FULL_RANGE,
            dst_color_range=LIMITED_RANGE,
        )
        frame.pts, frame.time_base = self.clip.ticks[index] - self.first, self.clip.time_base
        self._mux(frame)

    def flush(self) -> None:
        """Write what the encoder holds back."""
        self._mux(None)

    def _new_stream(self, height: int, width: int) -> Any:
        stream = self.container.add_stream(CODEC, rate=self.clip.rate.limit_denominator(100_000), options=ENCODING)
        context = stream.codec_context
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        context.time_base = stream.time_base = self.clip.time_base
        context.max_b_frames = 0
        context.sample_aspect_ratio = self.clip.pixel_aspect
        context.colorspace = context.color_primaries = context.color_trc = BT709
        context.color_range = LIMITED_RANGE
        return stream

    def _mux(self, frame: Any) -> None:
        places = {self.clip.ticks[index] - self.first: index for index in self.chunk}
        for packet in self.stream.encode(frame):
            packet.duration = self.clip.duration(places[packet.pts])
            self.container.mux(packet)


class FolderSink:
    """PNG files, one for each frame.

    Args:
        output: the folder to publish to.
        folder: the files are written here first.
        name_of: name of a frame's file, without suffix.
    """

    def __init__(self, output: Path, folder: Path, name_of: Callable[[int], str]) -> None:
        self.output, self.folder, self.name_of = output, folder, name_of

    @contextmanager
    def chunk(self, chunk: range) -> Iterator[Add]:
        """See `Sink.chunk`."""
        yield lambda index, picture: write_image(self.folder / self._name(index), picture)

    def publish(self, chunks: Sequence[range]) -> None:
        """See `Sink.publish`. A file that an interrupted publication has moved already is there."""
        self.output.mkdir(parents=True, exist_ok=True)
        for name in (self._name(index) for chunk in chunks for index in chunk):
            if (self.folder / name).is_file():
                os.replace(self.folder / name, self.output / name)

    def _name(self, index: int) -> str:
        return f"{self.name_of(index)}.png"


def even(picture: Picture) -> Picture:
    """The picture with even sides: the last row or column is repeated if need be."""
    height, width = picture.shape[:2]
    return np.ascontiguousarray(np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))
