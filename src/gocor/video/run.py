"""Flow, tracks and steady frames of a clip, from frames to files."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..matching.sequence import match_sequence
from ..models.network import MatchingNetwork
from ..ops.homography import project
from ..utils.errors import InputError
from ..utils.files import check_folder, check_target, remove_leftovers, write_bytes_atomically
from ..viz import flow_scale
from .analysis import Report, analyse
from .clip import Clip, Source
from .file_source import VideoFile, import_av
from .image_source import ImageSequence, find_images
from .options import VideoOptions
from .sinks import VIDEO_SUFFIXES, FolderSink, Sink, VideoSink
from .stabilize import corrections, crop_zoom, magnified, move
from .tracks import Points, Trails
from .work import Work, make_chunks

SAMPLES = 8  # pairs of frames in which the scale of the colours is measured
RATES = 0.001, 10_000
CSV_HEADER = "frame,track,x,y\n"


@dataclass(frozen=True)
class Made:
    """What a run has made.

    Attributes:
        files: paths that were written.
        clip: the input.
        max_flow: scale of the colours, in pixels; `None` if no flow is shown.
        zoom: share of the sides that a stabilised clip shows; `None` without stabilisation.
    """

    files: list[Path]
    clip: Clip
    max_flow: float | None
    zoom: float | None


def open_source(source: str, rate: float | None = None) -> Source:
    """Open a video file, a folder of images, or a pattern such as `frames/*.png`.

    Args:
        source: a path or a pattern.
        rate: frames per second of images, 25 by default; a video file has its own.
    """
    images = find_images(source)
    if images is None:
        if rate is not None:
            raise InputError(f"rate is for images; {source} has its own")
        return VideoFile(Path(source))
    if rate is not None and not RATES[0] <= rate <= RATES[1]:  # a container stores it as a quotient of 32-bit integers
        raise InputError(f"rate must be from {RATES[0]:g} to {RATES[1]:,} frames per second, got {rate:g}")
    return ImageSequence(images, Fraction(str(rate or 25)).limit_denominator(100_000))


def check_output(output: Path, *, overwrite: bool) -> None:
    """Check, before any work is done, that a clip can be written: a video file, or a folder if there is no suffix."""
    check_folder(output.parent)
    if output.suffix and output.suffix.lower() not in VIDEO_SUFFIXES:
        expected = ", ".join(VIDEO_SUFFIXES)
        raise InputError(f"the output must be a folder or end in {expected}, got {output}")
    if output.suffix:
        import_av()
        if output.is_symlink() or output.exists():
            check_target(output)
    else:
        check_folder(output)
    if overwrite or not output.exists() or (not output.suffix and not any(output.iterdir())):
        return
    raise InputError(f"{output} exists already; --overwrite replaces it")


def make_video(
    source: Source,
    output: Path,
    network: MatchingNetwork,
    options: VideoOptions,
    *,
    note: Any = None,
    report: Report = lambda step, done, total: None,
) -> Made:
    """Process a clip. Two frames are held at a time, whatever its length.

    Finished chunks of frames are kept in `OUTPUT.work` beside the output until all are finished, so that an interrupted
    run continues after its last finished chunk. The output appears when it is complete.

    Args:
        source: see `open_source`.
        output: a video file, or a folder for images if it has no suffix; see `check_output`.
        network: matches the frames.
        options: what to make.
        note: further facts that the output depends on, such as the weights, as JSON can hold them.
        report: called with the name of a step, the number of finished frames and the number of all.
    """
    _check_apart(source, output)
    output.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(output.parent)
    job = {"gocor": __version__, "source": source.stamp(), "model": network.name, "note": note, **options.as_dict()}
    work = Work(output, job)
    try:
        clip, max_flow = _scan(source, work, network, options, report)
    except BaseException:
        work.remove()  # Nothing is in it yet.
        raise
    sink: Sink = (
        VideoSink(output, work.folder, clip) if output.suffix else FolderSink(output, work.folder, source.name_of)
    )
    for folder in (options.flows, options.tracks_csv and options.tracks_csv.parent):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    analyse(source, clip, network, options, work, sink, max_flow=max_flow, report=report)
    zoom = None if options.stabilize is None else _stabilize(source, clip, options, work, sink, report)
    files = [output]
    if options.tracks_csv is not None:
        write_bytes_atomically(options.tracks_csv, _tracks_csv(work, clip))
        files.append(options.tracks_csv)
    if options.flows is not None:
        files.append(options.flows)
    sink.publish(make_chunks(clip.count))
    work.remove()
    return Made(files, clip, max_flow, zoom)


def _check_apart(source: Source, output: Path) -> None:
    """The output must not replace what it is made of: an interrupted run could not go on."""
    stamp = source.stamp()
    files = {Path(file["path"]) for file in (stamp if isinstance(stamp, list) else [stamp]) if file is not None}
    targets = {output.resolve()} if output.suffix else {(output / f"{path.stem}.png").resolve() for path in files}
    if targets & files:
        raise InputError(f"{output} would replace the frames that it is made of: choose another output")


def _scan(
    source: Source, work: Work, network: MatchingNetwork, options: VideoOptions, report: Report
) -> tuple[Clip, float | None]:
    """The clip, and the scale of its colours if they are shown."""
    facts = work.clip()
    if facts is None:
        clip = source.scan()
        if clip.count < 2:
            raise InputError("the clip has one frame: flow needs two")
        facts = {"clip": clip.as_dict(), "max_flow": options.max_flow}
        if options.shows_flow and options.max_flow is None:
            facts["max_flow"] = _measure_scale(source, clip.count, network, options, report)
        work.save_clip(facts)
    return Clip.from_dict(facts["clip"]), facts["max_flow"]


def _measure_scale(
    source: Source, count: int, network: MatchingNetwork, options: VideoOptions, report: Report
) -> float:
    """The largest scale of a sample of flows, distributed over the clip."""
    starts = sorted({round(place) for place in np.linspace(0, count - 2, SAMPLES).tolist()})
    frames = source.frames(only={index for start in starts for index in (start, start + 1)})
    scale, before = 0.0, None
    for index, picture in frames:
        if index - 1 in starts and before is not None:
            (result,) = match_sequence((before, picture), network, options.matching)
            scale = max(scale, flow_scale(result.flow))
            report("measure", starts.index(index - 1) + 1, len(starts))
        before = picture
    return scale


def _stabilize(source: Source, clip: Clip, options: VideoOptions, work: Work, sink: Sink, report: Report) -> float:
    """Draw the steady frames, after the motion of all frames is known; returns the zoom."""
    assert options.stabilize is not None
    size, chunks = (clip.height, clip.width), make_chunks(clip.count)
    motions = np.concatenate([work.load(chunk).motions for chunk in chunks])
    matrices = corrections(motions, options.stabilize.smooth, size)
    zoom = crop_zoom(matrices, size) if options.stabilize.border == "crop" else 1.0
    matrices = magnified(matrices, zoom, size)
    frames, trails = source.frames(), Trails()
    for chunk in chunks:
        analysis = work.load(chunk)
        with sink.chunk(chunk) as add:
            for index in chunk:
                _, picture = next(frames)
                moved = move(picture, matrices[index])
                if options.tracks:
                    ids, places = analysis.points_of(index)
                    trails.add(Points(ids, project(matrices[index], places)))
                    moved = trails.draw(moved)
                add(index, np.concatenate([picture, moved], 1) if options.shown == "side" else moved)
                report("draw", index + 1, clip.count)
    return zoom


def _tracks_csv(work: Work, clip: Clip) -> bytes:
    rows = (row for chunk in make_chunks(clip.count) for row in work.load(chunk).rows.tolist())
    lines = (f"{frame:.0f},{track:.0f},{x:.3f},{y:.3f}\n" for frame, track, x, y in rows)
    return (CSV_HEADER + "".join(lines)).encode()
