"""The options of `gocor video`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..matching.files import FLOW_FILES
from ..matching.options import MatchOptions
from ..utils.checks import check_choice, check_count
from ..utils.errors import InputError
from .stabilize import Stabilization

VIEWS = ("flow", "side", "overlay", "frame")
STEADY_VIEWS = ("frame", "side")
CLOSE_FRAMES = MatchOptions(align=False)


@dataclass(frozen=True, kw_only=True)
class VideoOptions:
    """What to make of a clip.

    Attributes:
        view: what the output shows: `"flow"`, `"side"` (frame and flow side by side; with `stabilize`, the frame before
            and after), `"overlay"` (the flow over the frame) or `"frame"`. `None` is `"frame"` with `tracks` or
            `stabilize`, and otherwise `"flow"`.
        max_flow: length in pixels with the full colour, in all frames; `None` measures it in a sample of the frames.
        tracks: largest number of points to follow; 0 for none.
        stabilize: how to steady the frames; `None` leaves them as they are.
        flows: folder for the flows as files; or `None`.
        flow_format: format of those files: `flo`, `kitti`, `npz` or `pfm`.
        tracks_csv: file for the tracks; or `None`.
        matching: how frames are matched. Consecutive frames are close, so alignment is off.
    """

    view: str | None = None
    max_flow: float | None = None
    tracks: int = 0
    stabilize: Stabilization | None = None
    flows: Path | None = None
    flow_format: str = "flo"
    tracks_csv: Path | None = None
    matching: MatchOptions = CLOSE_FRAMES

    def __post_init__(self) -> None:
        check_count("tracks", self.tracks)
        if self.view is not None:
            check_choice("view", self.view, VIEWS)
        check_choice("flow_format", self.flow_format, tuple(FLOW_FILES))
        if self.max_flow is not None and not 0 < self.max_flow < float("inf"):
            raise InputError(f"max_flow must be a positive number of pixels, got {self.max_flow}")
        if self.max_flow is not None and not self.shows_flow:
            raise InputError("max_flow is the scale of the flow's colours, which this view does not show")
        if self.tracks_csv is not None and not self.tracks:
            raise InputError("tracks_csv needs tracks: give the number of points to follow")
        if self.stabilize is not None and self.shown not in STEADY_VIEWS:
            raise InputError(f"stabilized clips have the view {' or '.join(STEADY_VIEWS)}, got {self.shown}")
        if self.shown == "frame" and not self.tracks and self.stabilize is None:
            raise InputError("the view frame would copy the clip: give tracks or stabilize too")

    @property
    def shown(self) -> str:
        """The view, with its default in place of `None`."""
        return self.view or ("frame" if self.tracks or self.stabilize else "flow")

    @property
    def shows_flow(self) -> bool:
        """Whether frames of the output show colours of the flow."""
        return self.shown != "frame" and self.stabilize is None

    @property
    def flow_suffix(self) -> str:
        """Suffix of flow files."""
        return Path(FLOW_FILES[self.flow_format]).suffix

    def as_dict(self) -> dict[str, Any]:
        """All options, as JSON can hold them."""
        return {
            "view": self.shown,
            "max_flow": self.max_flow,
            "tracks": self.tracks,
            "stabilize": None if self.stabilize is None else self.stabilize.as_dict(),
            "flows": None if self.flows is None else str(self.flows.resolve()),
            "flow_format": self.flow_format,
            "matching": self.matching.as_dict(),
        }
