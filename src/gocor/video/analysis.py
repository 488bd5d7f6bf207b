"""The pass over a clip that matches its frames."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
from numpy.typing import NDArray

from ..data.io import write_flow
from ..matching.result import MatchResult
from ..matching.sequence import match_sequence
from ..models.network import MatchingNetwork
from ..utils.arrays import Picture
from ..utils.errors import InputError
from .clip import Clip, Source
from .drawing import draw
from .options import VideoOptions
from .sinks import Sink
from .stabilize import fit_motion
from .tracks import Points, Tracker, Trails
from .work import Analysis, Work, make_chunks

Report = Callable[[str, int, int], None]
NO_ROWS, NO_MOTIONS = np.zeros((0, 4)), np.zeros((0, 3, 3))


def analyse(
    source: Source,
    clip: Clip,
    network: MatchingNetwork,
    options: VideoOptions,
    work: Work,
    sink: Sink,
    *,
    max_flow: float | None,
    report: Report,
) -> None:
    """Match each frame with the next one, from the first unfinished chunk on, and store what the options ask for.

    Without stabilisation, the frames are drawn in the same pass.
    """
    chunks = make_chunks(clip.count)
    finished = work.finished(chunks)
    if finished == len(chunks):
        return
    step = _Step(source, options, max_flow, work, chunks[:finished])
    frames = source.frames(chunks[finished].start)
    results = match_sequence((picture for _, picture in frames), network, options.matching)
    for chunk in chunks[finished:]:
        with sink.chunk(chunk) if options.stabilize is None else nullcontext() as add:
            step.run(chunk, clip.count, results, add, report)
        work.save(chunk, step.take())


class _Step:
    """What is carried from frame to frame: the tracks, and the rows and motions of the chunk at hand."""

    def __init__(
        self,
        source: Source,
        options: VideoOptions,
        max_flow: float | None,
        work: Work,
        finished: list[range],
    ) -> None:
        self.source, self.options, self.max_flow = source, options, max_flow
        self.tracker = Tracker(options.tracks) if options.tracks else None
        self.trails = Trails() if options.tracks else None
        self.rows: list[NDArray[np.float64]] = []
        self.motions: list[NDArray[np.float64]] = []
        if finished and options.tracks and self.trails is not None:
            last = work.load(finished[-1])
            self.tracker = Tracker(options.tracks, last.points, last.next_id)
            for index in finished[-1]:  # A chunk is as long as a trail.
                self.trails.add(last.points_of(index))

    def run(
        self,
        chunk: range,
        count: int,
        results: Iterator[MatchResult],
        add: Callable[[int, Picture], None] | None,
        report: Report,
    ) -> None:
        """Process the frames of a chunk; the last frame of the clip shows the flow of the one before it."""
        result: MatchResult | None = None
        for index in chunk:
            is_last = index == count - 1
            if not is_last:
                result = next(results, None)
            if result is None:
                raise InputError(f"the clip ended at frame {index} of {count}: it has changed since it was opened")
            self._track(index, None if is_last else result)
            if add is not None:
                picture = result.query if is_last else result.reference
                add(index, draw(self.options.shown, picture, result.flow, self.max_flow, self.trails))
            if not is_last:
                self._leave(index, result)
            report("match", index + 1, count)

    def take(self) -> Analysis:
        """What was found since the last call."""
        rows = np.concatenate([NO_ROWS, *self.rows])
        motions = np.stack(self.motions) if self.motions else NO_MOTIONS
        self.rows, self.motions = [], []
        if self.tracker is None:
            return Analysis(rows, motions, Points(np.zeros(0, np.int64), np.zeros((0, 2))), 0)
        return Analysis(rows, motions, self.tracker.points, self.tracker.next_id)

    def _track(self, index: int, result: MatchResult | None) -> None:
        """Begin new tracks in a frame, unless it is the last, and note where all tracks are."""
        if self.tracker is None or self.trails is None:
            return
        points = self.tracker.points if result is None else self.tracker.begin(result)
        self.trails.add(points)
        frames = np.full(len(points.ids), index)
        self.rows.append(np.column_stack([frames, points.ids, points.places]))

    def _leave(self, index: int, result: MatchResult) -> None:
        """Go on to the next frame."""
        if self.tracker is not None:
            self.tracker.advance(result)
        if self.options.stabilize is not None:
            self.motions.append(fit_motion(result, self.options.stabilize.motion))
        if self.options.flows is not None:
            name = self.source.name_of(index) + self.options.flow_suffix
            write_flow(self.options.flows / name, result.flow.numpy())
