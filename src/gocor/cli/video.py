"""`gocor video`: flow, tracks and steady frames of a clip."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

from ..utils.defaults import MAX_SIZE, MODEL
from ..utils.errors import InputError
from .errors import say, warnings_as_lines
from .match import Fast, Model
from .options import Device, ItersGlobal, ItersLocal, Json, MaxSize, MinSize, Quiet, Updates, Weights

if TYPE_CHECKING:
    from ..video import Made, Stabilization, VideoOptions

INTERVAL = {True: 0.2, False: 30.0}  # seconds between lines of progress, on a terminal and elsewhere

Source = Annotated[str, Argument(help="A video file, a folder of frames, or a quoted pattern such as 'frames/*.png'.")]
Output = Annotated[
    Path, Option("--output", "-o", help="Video file to write (.mp4, .mov or .mkv), or a folder for PNG frames.")
]
View = Annotated[
    str | None,
    Option(
        help="What to draw: `flow`, `side` (frame and flow; with --stabilize: before and after), `overlay` (flow over "
        "the grey frame) or `frame`.",
        show_default="frame with --tracks or --stabilize, otherwise flow",
    ),
]
MaxFlow = Annotated[
    float | None,
    Option(help="Length of flow, in pixels, that is drawn in full colour.", show_default="the largest in a sample"),
]
Tracks = Annotated[int, Option(min=0, help="Number of points to follow through the clip, drawn as trails.")]
TracksCsv = Annotated[Path | None, Option(help="CSV file to write the tracks to, with the columns frame, track, x, y.")]
Stabilize = Annotated[bool, Option("--stabilize", help="Remove the shake of the camera.")]
Motion = Annotated[
    str | None, Option(help="For --stabilize: motion model, `similarity` or `homography`.", show_default="similarity")
]
Smooth = Annotated[
    int | None,
    Option(min=1, help="For --stabilize: standard deviation of the smoothing, in frames.", show_default="12"),
]
Border = Annotated[
    str | None, Option(help="For --stabilize: `crop` borders, or `fill` them with black.", show_default="crop")
]
Flows = Annotated[Path | None, Option(help="Folder to write the flow from each frame to the next to.")]
FlowFormat = Annotated[str, Option(help="For --flows: format of the files, flo, kitti, npz or pfm.")]
Rate = Annotated[float | None, Option(help="Frames per second, if SOURCE is images.", show_default="25")]
Align = Annotated[
    bool, Option("--align", help="Align frames before matching, for clips with large motion between frames.")
]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace an output that exists.")]


def video(
    source: Source,
    *,
    output: Output,
    view: View = None,
    max_flow: MaxFlow = None,
    tracks: Tracks = 0,
    tracks_csv: TracksCsv = None,
    stabilize: Stabilize = False,
    motion: Motion = None,
    smooth: Smooth = None,
    border: Border = None,
    flows: Flows = None,
    flow_format: FlowFormat = "flo",
    rate: Rate = None,
    model: Model = MODEL,
    weights: Weights = "default",
    device: Device = "auto",
    iters_local: ItersLocal = None,
    iters_global: ItersGlobal = None,
    updates: Updates = None,
    min_size: MinSize = None,
    max_size: MaxSize = MAX_SIZE,
    align: Align = False,
    fast: Fast = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw the flow of a clip, follow its points, or stabilise it.

    Writes a video file or a folder of frames, with the number and times of frames of the clip. Colours have one scale
    for the whole clip. Audio is dropped. An interrupted command can be run again: it continues after the last finished
    frames, which are kept in OUTPUT.work until the output is complete.

    Example: gocor video walk.mp4 -o flow.mp4 --view side
    """
    from ..matching.options import MatchOptions
    from ..video import VideoOptions, check_output

    check_output(output, overwrite=overwrite)
    matching = MatchOptions(
        iters_local=iters_local,
        iters_global=iters_global,
        updates=updates,
        min_size=min_size,
        max_size=max_size or None,
        align=align,
        fast=fast,
    )
    options = VideoOptions(
        view=view,
        max_flow=max_flow,
        tracks=tracks,
        stabilize=_stabilization(stabilize, motion=motion, smooth=smooth, border=border),
        flows=flows,
        flow_format=flow_format,
        tracks_csv=tracks_csv,
        matching=matching,
    )
    made = _make(
        source, output, options, rate=rate, model=model, weights=weights, device=device, fast=fast, quiet=quiet
    )
    _print(made, json=json, quiet=quiet)


def _make(
    source: str,
    output: Path,
    options: "VideoOptions",
    *,
    rate: float | None,
    model: str,
    weights: str,
    device: str,
    fast: bool,
    quiet: bool,
) -> "Made":
    """Process the clip, and print what differs from the input."""
    from ..models.weights import SHIPPED, UntrainedWarning, load_model
    from ..utils.files import check_folder, check_target, file_stamp
    from ..video import make_video, open_source

    for folder in (options.tracks_csv and options.tracks_csv.parent, options.flows):
        if folder is not None:
            check_folder(folder)
    if options.tracks_csv is not None and options.tracks_csv.exists():
        check_target(options.tracks_csv)
    clip = open_source(source, rate)
    with warnings_as_lines(UntrainedWarning):
        network = load_model(model, None if weights == "none" else weights, device=device, fast=fast)
    file = SHIPPED / f"{model}.safetensors" if weights == "default" else weights
    note = {"weights": file_stamp(file), "fast": fast}
    made = make_video(clip, output, network, options, note=note, report=Progress(quiet=quiet))
    if made.clip.has_audio:
        say("audio is dropped")
    width = made.clip.width * (2 if options.shown == "side" else 1)
    if output.suffix and (made.clip.height % 2 or width % 2):
        say(f"frames of {width}×{made.clip.height} have odd sides: the last row or column is repeated")
    if not output.suffix:
        own = {f"{clip.name_of(index)}.png" for index in range(made.clip.count)}
        if others := sum(path.name not in own for path in output.iterdir()):
            say(f"{output} also holds {others} file{'s' * (others != 1)} that this clip does not have")
    return made


def _print(made: "Made", *, json: bool, quiet: bool) -> None:
    """Print what was made; `quiet` does not silence an answer that was asked for as JSON."""
    if json:
        _print_json(made)
        return
    if quiet:
        return
    if made.max_flow is not None:
        echo(f"full colour at a flow of {made.max_flow:.3g} pixels")
    if made.zoom is not None:
        echo(f"stabilised frames show {100 * made.zoom:.0f} % of the width and height")
    for file in made.files:
        echo(f"wrote {file}")


def _print_json(made: "Made") -> None:
    import json

    clip = {"frames": made.clip.count, "width": made.clip.width, "height": made.clip.height}
    scales = {"max_flow": made.max_flow, "zoom": made.zoom}
    echo(json.dumps({"files": [str(file) for file in made.files], "clip": clip, **scales}, indent=2))


def _stabilization(
    wanted: bool, *, motion: str | None, smooth: int | None, border: str | None
) -> "Stabilization | None":
    """The options of stabilisation; they are errors without it."""
    from ..video import Stabilization

    given = {name: value for name, value in (("motion", motion), ("smooth", smooth), ("border", border)) if value}
    if given and not wanted:
        raise InputError(f"--{next(iter(given))} needs --stabilize")
    return Stabilization(**given) if wanted else None  # type: ignore[arg-type]


class Progress:
    """Prints finished frames, their rate and the time left on stderr.

    Args:
        quiet: print nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self.quiet, self.terminal = quiet, sys.stderr.isatty()
        self.step = ""
        self.first, self.start, self.printed = 0, 0.0, 0.0

    def __call__(self, step: str, done: int, total: int) -> None:
        """Report that so many frames of a step are finished."""
        now = time.monotonic()
        if step != self.step:
            self.step, self.first, self.start, self.printed = step, done, now, now
        due = now - self.printed >= INTERVAL[self.terminal] or done == total
        if self.quiet or not due:
            return
        self.printed = now
        line = f"{step}: {done} of {total}"
        if done > self.first and now > self.start:
            rate = (done - self.first) / (now - self.start)  # of this run; the first frame began before the clock
            line += f", {rate:.3g} frames/s, {_duration((total - done) / rate)} left"
        end = "\n" if not self.terminal or done == total else ""
        print(f"\r\033[K{line}" if self.terminal else line, end=end, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
