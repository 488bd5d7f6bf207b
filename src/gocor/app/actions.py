"""What the events of the page do. Errors about what a visitor gave become messages on the page."""

import logging
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr

from ..utils.defaults import MAX_SIZE
from ..utils.errors import GOCorError, InputError, is_out_of_memory
from . import views
from .settings import Settings, facts_of, from_query, start_settings
from .uploads import read_upload
from .workshop import Outcome, Workshop, save_zip

NAMES = ("model", "iters_global", "iters_local", "updates", "max_size", "min_size", "align")
OLD = "this result is not kept any more: press Match again"
log = logging.getLogger(__name__)


class Actions:
    """The functions that the page calls, for one server.

    Args:
        workshop: computes.
        examples: image pairs by title; the first one is shown when the page opens.
        folder: for the archives; each visit has a folder of its own in it.
        largest: largest size that a visitor may choose.
    """

    def __init__(
        self, workshop: Workshop, examples: dict[str, tuple[str, str]], folder: Path, *, largest: int = MAX_SIZE
    ) -> None:
        self.workshop, self.examples, self.folder, self.largest = workshop, examples, folder, largest
        self.facts = {name: facts_of(name) for name in workshop.models}
        self.start = start_settings(workshop.models[0], workshop.device, largest)

    def match(
        self,
        reference: str | None,
        query: str | None,
        *values: Any,
        progress: Callable[..., Any] = gr.Progress(),  # noqa: B008  gradio finds it by this default
    ) -> list[Any]:
        """Match two uploaded images; returns the outcome and every view, see `page`."""
        with messages():
            settings = self._settings(values)
            progress(0, desc="reading the images")
            pictures = read_upload("reference", reference), read_upload("query", query)
            outcome = self.workshop.compute(*pictures, settings, lambda done, what: progress(done, desc=what))
            progress(0.9, desc="drawing")
            x, y = outcome.first_pixel()
            names = [layer.scores.name for layer in outcome.layers]
            choices = [(f"{name.capitalize()} layer", name) for name in names]
            radio = gr.Radio(choices, value=names[0] if names else None, visible=len(names) > 1)
            why = views.why_view(outcome, x, y, None)
            waiting = gr.DownloadButton("Preparing the files …", value=None, interactive=False)
            return [outcome, radio, why, *views.result_views(outcome).values(), waiting, (x, y)]

    def pick(self, outcome: Outcome | None, layer: str | None, event: gr.EventData) -> tuple[str, tuple[int, int]]:
        """Show the scores of the pixel that a visitor picked."""
        with messages():
            outcome = _kept(outcome)
            height, width = outcome.result.confidence.shape
            x, y = min(max(0, int(event.x)), width - 1), min(max(0, int(event.y)), height - 1)
            return views.why_view(outcome, x, y, layer), (x, y)

    def layer(
        self, outcome: Outcome | None, layer: str | None, pixel: tuple[int, int] | None
    ) -> tuple[str, tuple[int, int]]:
        """Show the scores of another layer for the same pixel."""
        with messages():
            outcome = _kept(outcome)
            x, y = pixel or outcome.first_pixel()
            return views.why_view(outcome, x, y, layer), (x, y)

    def pack(self, outcome: Outcome | None, request: gr.Request) -> Any:
        """Make the archive of a result, and offer it."""
        with messages():
            path = save_zip(_kept(outcome).result, self.visit(request) / secrets.token_hex(8))
            size = path.stat().st_size / 1e6
            return gr.DownloadButton(f"Download all files ({size:.1f} MB)", value=str(path), interactive=True)

    def link(self, *values: Any) -> str:
        """The query string of the settings."""
        with messages():
            return self._settings(values).to_query()

    def choose_model(self, model: str) -> list[Any]:
        """The settings that a network starts with."""
        with messages():
            if model not in self.workshop.models:
                raise InputError(f"no network of this page is named {model!r}")
            return self._controls(start_settings(model, self.workshop.device, self.largest))

    def open(self, request: gr.Request) -> list[Any]:
        """The first example, and the settings that the address asks for."""
        query, settings = dict(request.query_params), self.start
        try:
            if query.get("model") in self.workshop.models:
                settings = start_settings(query["model"], self.workshop.device, self.largest)
            settings = from_query(query, settings, self.workshop.models, self.largest)
        except InputError as error:
            gr.Warning(_sentence(error))
        return [*next(iter(self.examples.values())), *self._controls(settings)]

    def close(self, request: gr.Request) -> None:
        """Remove the files of a visit that has ended."""
        shutil.rmtree(self.visit(request), ignore_errors=True)

    def visit(self, request: gr.Request) -> Path:
        """The folder of a visit."""
        name = "".join(c for c in str(request.session_hash) if c.isalnum())
        return self.folder / f"visit-{name}"

    def _settings(self, values: tuple[Any, ...]) -> Settings:
        """The settings of the page's controls, checked as a link is, because anyone can send any value."""
        texts = {
            name: str(int(v) if isinstance(v, (bool, float)) else v) for name, v in zip(NAMES, values, strict=True)
        }
        return from_query(texts, self.start, self.workshop.models, self.largest)

    def _controls(self, settings: Settings) -> list[Any]:
        from .page import shown

        facts = self.facts[settings.model]
        return [
            settings.model,
            *(gr.update(value=getattr(settings, name), visible=shown(facts, name)) for name in NAMES[1:]),
        ]


@contextmanager
def messages() -> Iterator[None]:
    """Turn errors into messages on the page: in full about a visitor's input, without details about a bug."""
    try:
        yield
    except gr.Error:
        raise
    except GOCorError as error:
        raise gr.Error(_sentence(error), print_exception=False) from None
    except Exception as error:
        if is_out_of_memory(error):
            raise gr.Error(
                "There is not enough memory: choose a smaller size in the settings.", print_exception=False
            ) from None
        log.exception("the page failed")
        raise gr.Error("The computation failed; the log of the server says why.", print_exception=False) from None


def _kept(outcome: Outcome | None) -> Outcome:
    if outcome is None:
        raise InputError(OLD)
    return outcome


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + "."
