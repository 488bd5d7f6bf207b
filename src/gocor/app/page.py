"""The page itself, in gradio: components and which function each event calls. `actions` has the functions."""

from pathlib import Path
from typing import Any

import gradio as gr

from .actions import Actions
from .settings import SIZE_STEP, Facts, bounds

WEB = Path(__file__).parent / "web"
TITLE = "GOCor: why does this pixel match?"
HEAD = (
    '<div class="gc-head"><h1>GOCor: why does this pixel match?</h1><p>A network matches every pixel of one image with '
    "another. <b>Plain correlation</b> compares two pixels at a time, so places that look alike score as high as the "
    "true match. <b>GOCor</b> optimises a filter for each pixel, which scores high at its own pixel and low at places "
    "that look alike. Click a pixel under <b>Why it matches</b> to compare.</p></div>"
)
EMPTY = '<div class="gc-empty">The result appears here. Choose an example, or give two images and press Match.</div>'
TABS = {
    "flow": "Flow",
    "overlay": "Overlay",
    "before": "Before / after",
    "matches": "Matches",
    "confidence": "Confidence",
}
LINK_JS = "(query) => { history.replaceState(null, '', query); return location.origin + location.pathname + query }"
QUEUE_SIZE, SESSIONS = 16, 24
SWEEP, KEEP = 600, 3600  # seconds between removals of temporary files, and the age at which they are removed


def uploaded_image(name: str, label: str) -> gr.Image:
    """An input for an image, which hands over the path of the uploaded file unread.

    gradio would decode the file and answer a damaged one with an error of its own; `uploads` reads it and says what is
    wrong. The method is replaced in the object, because gradio writes a file beside the source of a derived class.
    """
    image = gr.Image(
        label=label,
        sources=["upload", "clipboard", "webcam"],
        type="filepath",
        height=230,
        min_width=150,
        buttons=[],
        placeholder="Drop an image here, click to choose one, or paste one with Ctrl+V",
        elem_id=name,
    )
    image.preprocess = lambda payload: None if payload is None else payload.path  # type: ignore[method-assign]
    return image


def build_page(actions: Actions) -> gr.Blocks:
    """The page.

    Args:
        actions: what its events call.
    """
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(SWEEP, KEEP)) as page:
        page.state_session_capacity = SESSIONS
        outcome = gr.State(None, time_to_live=KEEP)
        gr.HTML(HEAD, js_on_load=(WEB / "paste.js").read_text(encoding="utf-8"))
        images = _images()
        with gr.Row():
            start = gr.Button("Match", variant="primary", elem_id="match")
            swap = gr.Button("Swap images", elem_id="swap")
            download = gr.DownloadButton("Download all files", interactive=False, elem_id="download")
        examples = gr.Examples(
            [list(pair) for pair in actions.examples.values()],
            inputs=images,
            example_labels=list(actions.examples),
            label="Examples",
        )
        controls = _controls(actions)
        views = _results()
        _connect(page, actions, outcome, images, (start, swap, download), examples, controls, views)
    page.queue(max_size=QUEUE_SIZE, default_concurrency_limit=1)
    return page


def _images() -> list[gr.Image]:
    """The two inputs."""
    with gr.Row(equal_height=True):
        return [uploaded_image("reference", "Reference"), uploaded_image("query", "Query")]


def _controls(actions: Actions) -> dict[str, Any]:
    """The settings by name, and the link that restores them."""
    start, limits = actions.start, bounds(actions.largest)
    with gr.Accordion("Settings", open=False, elem_id="settings"):
        found: dict[str, Any] = {
            "model": gr.Dropdown(actions.workshop.models, value=start.model, label="Network", elem_id="model")
        }
        for row in _SLIDERS:
            with gr.Row():
                for name, (label, info) in row.items():
                    found[name] = gr.Slider(
                        *limits[name],
                        value=getattr(start, name),
                        step=SIZE_STEP if name.endswith("size") else 1,
                        label=label,
                        info=info,
                        min_width=220,
                        visible=shown(actions.facts[start.model], name),
                        elem_id=name,
                    )
        found["align"] = gr.Checkbox(
            start.align,
            label="Align images with a wide baseline, and fit a homography to flat scenes",
            visible=shown(actions.facts[start.model], "align"),
            elem_id="align",
        )
        found["link"] = gr.Textbox(label="Link to these settings", buttons=["copy"], interactive=False, elem_id="link")
    return found


_SLIDERS = (
    {
        "iters_global": ("Iterations, global GOCor", "0: the initial filters"),
        "iters_local": ("Iterations, local GOCor", "0: the initial filters"),
        "updates": ("Recurrent updates", "more updates are slower and more accurate"),
    },
    {
        "max_size": ("Shrink to at most", "longer side in pixels"),
        "min_size": ("Enlarge to at least", "longer side in pixels; 0: never"),
    },
)


def shown(facts: Facts, name: str) -> bool:
    """Whether a network has what a setting controls."""
    return {
        "iters_global": facts.iters_global is not None,
        "iters_local": facts.iters_local is not None,
        "updates": facts.updates is not None,
        "align": facts.can_align,
    }.get(name, True)


def _results() -> dict[str, Any]:
    """The views by name."""
    found: dict[str, Any] = {}
    compare = (WEB / "compare.js").read_text(encoding="utf-8")
    with gr.Tabs():
        with gr.Tab("Why it matches"):
            found["layer"] = gr.Radio(
                [], label="Layer of the network", show_label=False, container=False, visible=False, elem_id="layer"
            )
            pick = (WEB / "pick.js").read_text(encoding="utf-8")
            found["why"] = gr.HTML(EMPTY, js_on_load=pick, elem_id="why")
        for name, label in TABS.items():
            with gr.Tab(label):
                found[name] = gr.HTML(EMPTY, js_on_load=compare, elem_id=f"view-{name}")
    return found


def _connect(
    page: gr.Blocks,
    actions: Actions,
    outcome: gr.State,
    images: list[gr.Image],
    buttons: tuple[gr.Button, gr.Button, gr.DownloadButton],
    examples: Any,
    controls: dict[str, Any],
    views: dict[str, Any],
) -> None:
    """Connect events and actions."""
    start, swap, download = buttons
    settings = [control for name, control in controls.items() if name != "link"]
    model, link = controls["model"], controls["link"]
    shows = [outcome, views["layer"], views["why"], *(views[name] for name in TABS), download]
    pixel = gr.State(None)
    private: dict[str, Any] = {"api_visibility": "private"}
    quiet = {"show_progress": "hidden", "queue": False, **private}

    def after(event: Any) -> None:
        """Match, show everything, then pack the files, whatever started it."""
        run = event(lambda: gr.Button("Matching …", interactive=False), None, start, **quiet).then(
            actions.match,
            [*images, *settings],
            [*shows, pixel],
            concurrency_id="match",
            show_progress_on=[views["why"], *(views[name] for name in TABS)],  # whichever tab is open
            **private,
        )
        for ended in (run.success, run.failure):
            ended(lambda: gr.Button("Match", interactive=True), None, start, **quiet)
        run.success(actions.pack, outcome, download, show_progress="hidden", concurrency_id="pack", **private)

    def relink(event: Any) -> None:
        """Write the link after a change of the settings."""
        event(actions.link, settings, link, **quiet).then(None, link, link, js=LINK_JS, **private)

    after(start.click)
    after(examples.load_input_event.then)
    swap.click(lambda a, b: (b, a), images, images, **quiet)
    see = {"outputs": [views["why"], pixel], "show_progress": "hidden", "concurrency_id": "pick"}
    views["why"].pick(actions.pick, [outcome, views["layer"]], **see, trigger_mode="always_last", **private)
    views["layer"].input(actions.layer, [outcome, views["layer"], pixel], **see, **private)
    relink(model.input(actions.choose_model, model, settings, **quiet).then)
    for control in settings[1:]:
        relink(control.input)
    opened = page.load(actions.open, None, [*images, *settings], show_progress="hidden", **private)
    relink(opened.then)
    after(opened.then)
    page.unload(actions.close)


def theme() -> gr.themes.Base:
    """A theme whose fonts are those of the visitor's system."""
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
    return gr.themes.Soft(
        primary_hue="blue", neutral_hue="slate", font=fonts, font_mono=["ui-monospace", "monospace"], radius_size="md"
    )


def style() -> str:
    """The style sheet."""
    return (WEB / "page.css").read_text(encoding="utf-8")
