"""A folder of photos → a COLMAP model, in stages that can be watched and resumed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..models.network import MatchingNetwork
from ..pipeline.job import Job
from ..pipeline.job import Report as PairReport
from ..pipeline.pairs import Pair
from ..pipeline.run import Place, Some, find_unfinished, run_job
from ..utils.checks import check_choice
from ..utils.files import check_folder, remove_leftovers
from ..utils.locks import locked_folder
from ..utils.timing import Stages
from .colmap import CameraOptions, import_pycolmap, map_photos, write_database
from .graph import MatchGraph, build_graph
from .hloc import write_hloc
from .pairing import Edges, exhaustive_pairs, name_pairs, photo_similarity, sequential_pairs, similar_pairs
from .photos import find_photos
from .report import Report, report_of
from .store import AnchorStore

MAX_EXHAUSTIVE = 40  # photos: larger collections are paired by similarity, unless another pairing is chosen
PAIRINGS = ("exhaustive", "sequential", "similar")


@dataclass
class Reconstruction:
    """One reconstruction: choose pairs, match them, then write the database and the model.

    Args:
        folder: folder of the photos.
        output: folder to write to. `matches/` in it keeps the matches of each pair, for the next run.
        job: how to match.
        max_keypoints: largest number of anchors of a photo.
    """

    folder: Path
    output: Path
    job: Job
    max_keypoints: int = 1000

    def __post_init__(self) -> None:
        import_pycolmap()  # an error about it comes before any work
        self.photos = find_photos(self.folder)
        check_folder(self.output)
        self.store = AnchorStore(self.output / "matches", self.max_keypoints)
        self.stages = Stages()
        self.edges: Edges = []

    def pairing(self, chosen: str | None) -> str:
        """The way of choosing pairs: the chosen one, or the default for this number of photos."""
        if chosen is None:
            return "exhaustive" if len(self.photos) <= MAX_EXHAUSTIVE else "similar"
        check_choice("pairs", chosen, PAIRINGS)
        return chosen

    def choose_pairs(self, pairing: str, neighbours: int, network: MatchingNetwork | None = None) -> Sequence[Pair]:
        """Choose the pairs to match.

        Args:
            pairing: one of `PAIRINGS`.
            neighbours: number of photos that each is paired with; exhaustive pairs do without.
            network: computes the features for similar pairs.
        """
        with self.stages.measure("pair"):
            if pairing == "exhaustive":
                self.edges = exhaustive_pairs(len(self.photos))
            elif pairing == "sequential":
                self.edges = sequential_pairs(len(self.photos), neighbours)
            else:
                assert network is not None
                self.edges = similar_pairs(photo_similarity(self.photos, network), neighbours)
        return name_pairs(self.photos, self.edges)

    def unmatched(self, pairs: Sequence[Pair], *, overwrite: bool = False) -> Some:
        """The pairs that were not matched by an earlier run."""
        self.store.check(self.job)
        return Some.all(pairs) if overwrite else find_unfinished(pairs, self.job, self.store)

    def match(self, pairs: Some, device: str = "auto") -> Iterator[PairReport]:
        """Match pairs; yields the outcome of each."""
        return run_job(pairs, self.job, self.store, Place(devices=(device,)), count=len(pairs))

    def graph(self) -> MatchGraph:
        """The matches of all pairs; pairs that could not be matched are left out."""
        named = list(zip(self.edges, name_pairs(self.photos, self.edges), strict=True))
        with self.stages.measure("collect"):
            done = [
                (edge, self.store.read(pair))
                for edge, pair in named
                if self.store.is_finished(pair, self.job.note(pair))
            ]
            return build_graph(self.photos, done)

    def finish(self, graph: MatchGraph, cameras: CameraOptions, *, database_only: bool, h5: bool) -> Report:
        """Write database, model and report. It is an error if another process writes to the same folder.

        Args:
            graph: see `graph`.
            cameras: what is known of them.
            database_only: do not map.
            h5: write the files of hloc too.
        """
        with locked_folder(self.output):
            remove_leftovers(self.output)
            with self.stages.measure("verify"):
                verified = write_database(self.output / "database.db", graph, cameras)
            if h5:
                write_hloc(self.output, graph)
            models = []
            if not database_only:
                with self.stages.measure("map"):
                    models = map_photos(self.output / "database.db", self.folder, self.output)
            report = report_of(graph, verified, models, self.stages.seconds)
            report.write(self.output)
        return report
