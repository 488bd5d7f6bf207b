"""Size and times of a clip, and the interface of sources of frames."""

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Protocol

from ..utils.arrays import Picture


@dataclass(frozen=True, kw_only=True)
class Clip:
    """Size and times of a clip.

    Attributes:
        height: height of its frames, after they were turned upright.
        width: width of its frames, likewise.
        ticks: time of each frame in units of `time_base`, strictly increasing, from 0 on.
        time_base: seconds per tick.
        rate: mean number of frames per second.
        pixel_aspect: width of a pixel divided by its height.
        has_audio: whether the file has sound.
    """

    height: int
    width: int
    ticks: list[int]
    time_base: Fraction
    rate: Fraction
    pixel_aspect: Fraction = Fraction(1)
    has_audio: bool = False

    @property
    def count(self) -> int:
        """Number of frames."""
        return len(self.ticks)

    def duration(self, index: int) -> int:
        """Ticks from a frame to the next one; the last frame lasts as long as the one before it."""
        index = min(index, self.count - 2)
        return self.ticks[index + 1] - self.ticks[index] if index >= 0 else 1

    def as_dict(self) -> dict[str, Any]:
        """The clip as JSON can hold it."""
        fractions = {name: str(getattr(self, name)) for name in FRACTIONS}
        return asdict(self) | fractions

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Clip":
        """The clip that `as_dict` described."""
        return cls(**values | {name: Fraction(values[name]) for name in FRACTIONS})


FRACTIONS = ("time_base", "rate", "pixel_aspect")


class Source(Protocol):
    """Where frames come from."""

    def scan(self) -> Clip:
        """Count the frames and read their times; raises an InputError unless every frame can be read."""
        ...

    def frames(self, start: int = 0, only: Collection[int] | None = None) -> Iterator[tuple[int, Picture]]:
        """Number and picture of each frame, in order.

        Args:
            start: the first frame.
            only: yield these frames alone; `None` yields all.
        """
        ...

    def stamp(self) -> Any:
        """Identifies the content of the source, so that a changed source is recognised; plain data for JSON."""
        ...

    def name_of(self, index: int) -> str:
        """Name of a frame's file in a folder of frames, without suffix."""
        ...
