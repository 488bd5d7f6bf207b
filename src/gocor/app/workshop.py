"""What the page computes: networks are loaded once, and the latest results are kept."""

import hashlib
import io
import os
import tempfile
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..matching import MatchResult, match
from ..matching.scores import LayerScores, Measured, layer_scores
from ..models.network import MatchingNetwork
from ..models.weights import choose_device, load_model
from ..utils.arrays import Picture
from ..utils.files import write_bytes_atomically
from ..utils.stages import stages_shown
from .settings import Settings

KEPT = 4  # results
ZIP = "gocor-matches.zip"

Report = Callable[[float, str], object]
"""Takes the share of the work that is done and what comes next."""


@dataclass(frozen=True)
class Layer:
    """Scores of one correlation layer, and how it does over many pixels of the pair."""

    scores: LayerScores
    measured: Measured


@dataclass(frozen=True)
class Outcome:
    """Everything that the page shows of one pair."""

    result: MatchResult
    layers: tuple[Layer, ...]
    settings: Settings

    def layer(self, name: str | None) -> Layer | None:
        """The layer of this name, or the first one; `None` if the network shows none."""
        return next((layer for layer in self.layers if layer.scores.name == name), next(iter(self.layers), None))

    def first_pixel(self) -> tuple[int, int]:
        """The pixel `(x, y)` that is shown before a visitor picks one."""
        for layer in self.layers:
            if layer.measured.telling is not None:
                return int(layer.measured.telling[0]), int(layer.measured.telling[1])
        height, width = self.result.confidence.shape
        return width // 2, height // 2

    def match_of(self, x: int, y: int) -> tuple[float, float]:
        """Where the flow takes a reference pixel in the query."""
        dx, dy = self.result.flow[:, y, x].tolist()
        return x + dx, y + dy


class Workshop:
    """Networks and results of one server.

    Args:
        models: names of the networks that visitors may choose, the first one is preselected.
        device: see `load_model`.
        weights: of the first network, see `load_model`; the others have those that ship.
    """

    def __init__(
        self, models: list[str], *, device: str = "auto", weights: str | os.PathLike[str] | None = "default"
    ) -> None:
        self.models, self.device, self.weights = models, choose_device(device), weights
        self._networks: dict[str, MatchingNetwork] = {}
        self._results: OrderedDict[str, Outcome] = OrderedDict()
        self._loading, self._keeping = threading.Lock(), threading.Lock()

    def network(self, name: str) -> MatchingNetwork:
        """A network of the page, loaded at its first use."""
        with self._loading:
            if name not in self._networks:
                weights = self.weights if name == self.models[0] else "default"
                self._networks[name] = load_model(name, weights, device=self.device)
            return self._networks[name]

    def compute(self, reference: Picture, query: Picture, settings: Settings, report: Report) -> Outcome:
        """Match two pictures, and prepare the scores of all pixels; results of the same input are kept."""
        key = _key(reference, query, settings)
        with self._keeping:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        report(0.05, f"loading {settings.model}")
        network, options = self.network(settings.model), settings.options()
        done = 0.15

        def stage(name: str) -> None:
            """Report a stage of matching. Their number is not known, so each halves the distance to 0.75."""
            nonlocal done
            report(done, f"{name} ({settings.model})")
            done = (done + 0.75) / 2

        with stages_shown("gocor.matching", stage):
            result: MatchResult = match(reference, query, network, **options.as_dict())
        report(0.75, "optimising the filters of every pixel")
        layers = tuple(Layer(scores, scores.measure(result)) for scores in layer_scores(network, result, options))
        outcome = Outcome(result, layers, settings)
        with self._keeping:
            self._results[key] = outcome
            while len(self._results) > KEPT:
                self._results.popitem(last=False)
        return outcome


def save_zip(result: MatchResult, folder: Path) -> Path:
    """Write all files of `MatchResult.save` as one archive into a folder, which is created; returns its path."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as files, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in result.save(files):
            archive.write(path, Path(path).name)
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes_atomically(folder / ZIP, buffer.getvalue())
    return folder / ZIP


def start_models(model: str, shipped: list[str]) -> list[str]:
    """The networks of the page: the preselected one, then the others that ship."""
    return [model, *(name for name in shipped if name != model)]


def _key(reference: Picture, query: Picture, settings: Settings) -> str:
    digest = hashlib.sha256(repr((reference.shape, query.shape, settings)).encode())
    digest.update(reference.tobytes())
    digest.update(query.tobytes())
    return digest.hexdigest()
