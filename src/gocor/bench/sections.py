"""The tables of `gocor bench`, by section. A row compares variants of one piece of work."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from .work import Kind, Work

Scale = Literal["full", "cpu", "quick"]
"""Sizes of images and batches: those of a GPU, those that take minutes on a few CPU cores, or about one minute."""

# Channels, height and width of PWC-Net's features for images of 384×1280.
PWC_LEVELS = [(196, 6, 20), (128, 12, 40), (96, 24, 80), (64, 48, 160), (32, 96, 320)]


@dataclass(frozen=True)
class Case:
    """A row of a table. The variants are compared with the first one."""

    name: str
    variants: dict[str, Work]


@dataclass(frozen=True)
class Table:
    """Cases with the same variants.

    Attributes:
        title: title of the table.
        cases: rows of the table.
        growth: compare each row with the one before too. All rows are then measured in turns.
    """

    title: str
    cases: list[Case]
    growth: bool = False


def networks(scale: Scale) -> list[Table]:
    """Networks with plain correlation and with GOCor, from image tensors to flow."""
    pwc, glu = ((128, 256), (256, 256)) if scale == "quick" else ((384, 1280), (376, 1242))
    cases = [
        _pair("network", "pwcnet", pwc, iters_local=7),
        _pair("network", "glunet", glu, iters_local=7, iters_global=3),
        _pair("network", "basenet", (256, 256), iters_local=3, iters_global=3),
    ]
    return [Table("Networks, image in to flow out", cases)]


def modules(scale: Scale) -> list[Table]:
    """Local correlation layers at the levels of PWC-Net."""
    levels = PWC_LEVELS[:3] if scale == "quick" else PWC_LEVELS
    found = []
    for backward, title in ((False, "forward"), (True, "forward and backward")):
        cases = []
        for channels, height, width in levels:
            plain = Work("layer", "plain", (height, width), channels=channels, backward=backward)
            variants = {"plain": plain}
            for iters in (3, 7):
                variants[f"GOCor {iters} it."] = replace(plain, name="gocor", iters_local=iters)
            cases.append(Case(f"{channels}×{height}×{width}", variants))
        found.append(Table(f"Local layers at PWC-Net's levels, R = 4, {title}", cases))
    return found


def training(scale: Scale) -> list[Table]:
    """Forward pass, loss and backward pass."""
    batches = {"full": (40, 16, 8), "cpu": (4, 1, 1), "quick": (1, 1, 1)}[scale]
    glu, pwc = ((256, 256), (128, 192)) if scale == "quick" else ((520, 520), (320, 448))
    cases = [
        _pair("training", "basenet", (256, 256), batch=batches[0], iters_local=3, iters_global=3),
        _pair("training", "glunet", glu, batch=batches[1], iters_local=3, iters_global=3),
        _pair("training", "pwcnet", pwc, batch=batches[2], iters_local=3),
    ]
    return [Table("Training steps: forward, loss, backward", cases)]


def scaling(scale: Scale) -> list[Table]:
    """Growth with image size, batch size, iterations and radius."""
    sizes = {
        "full": [(192, 640), (384, 1280), (768, 2560)],
        "cpu": [(128, 384), (256, 768), (512, 1536)],
        "quick": [(64, 128), (128, 256)],
    }[scale]
    batches = {"full": [1, 2, 4, 8], "cpu": [1, 2, 4], "quick": [1, 2]}[scale]
    size = {"full": (384, 1280), "cpu": (128, 384), "quick": (64, 128)}[scale]
    counts = [1, 7] if scale == "quick" else [1, 3, 7, 15]
    radii = [2, 4] if scale == "quick" else [2, 4, 8]
    channels, *level = PWC_LEVELS[2 if scale == "quick" else 3]
    layer = Work("layer", "plain", (level[0], level[1]), channels=channels, iters_local=7)
    series = [
        ("Image size, PWC-Net", [_pair("network", "pwcnet", each, iters_local=7) for each in sizes]),
        ("Batch, PWC-Net", [_pair("network", "pwcnet", size, batch=each, iters_local=7) for each in batches]),
        ("Iterations, PWC-Net", [_pair("network", "pwcnet", size, iters_local=each) for each in counts]),
        (
            f"Radius, local layers {channels}×{level[0]}×{level[1]}, 7 iterations",
            [
                Case(f"R = {radius}", {"plain": replace(layer, radius=radius),
                                       "GOCor": replace(layer, name="gocor", radius=radius)})
                for radius in radii
            ],
        ),
    ]  # fmt: skip
    return [Table(title, cases, growth=True) for title, cases in series]


def recurrent(scale: Scale) -> list[Table]:
    """The recurrent network on plain features, on GOCor filters, and with its fine stage."""
    sizes = {"full": [(376, 1242), (1200, 1664)], "cpu": [(480, 640)], "quick": [(128, 192)]}[scale]
    batch, size = {"full": (12, (352, 480)), "cpu": (1, (352, 480)), "quick": (1, (96, 128))}[scale]
    inference = [_recurrent("network", each, updates=12) for each in sizes]
    return [
        Table("Recurrent network, image in to flow and confidence out", inference),
        Table("Recurrent network, training steps: forward, loss, backward", [_recurrent("training", size, batch)]),
    ]


def _recurrent(kind: Kind, size: tuple[int, int], batch: int = 1, updates: int | None = None) -> Case:
    """A row of the recurrent network; training has its own number of updates."""
    plain = Work(kind, "recurrent", size, batch, updates=updates)
    gocor = replace(plain, name="recurrent-gocor")
    many = f"{batch}×" if kind == "training" else ""
    label = f"{many}{size[0]}×{size[1]}" + ("" if updates is None else f", {updates} updates")
    return Case(label, {"plain": plain, "GOCor": gocor, "GOCor, fine": replace(gocor, options=(("fine", True),))})


SECTIONS: dict[str, Callable[[Scale], list[Table]]] = {
    "networks": networks,
    "recurrent": recurrent,
    "modules": modules,
    "training": training,
    "scaling": scaling,
}


def tables(section: str, scale: Scale, dtype: str, *, recorded: bool = False) -> list[Table]:
    """The tables of a section.

    Args:
        section: one of `SECTIONS`.
        scale: sizes of images and batches.
        dtype: dtype of the networks and layers.
        recorded: add tables of networks and of training steps as CUDA graphs.
    """
    found = SECTIONS[section](scale)
    plain = [_with(table, dtype=dtype) for table in found]
    if not recorded or section not in ("networks", "recurrent", "training"):
        return plain
    return plain + [replace(_with(t, dtype=dtype, recorded=True), title=f"{t.title}, as CUDA graphs") for t in found]


def _with(table: Table, **options: Any) -> Table:
    """A table with other options of its pieces of work."""
    cases = [
        replace(case, variants={name: replace(work, **options) for name, work in case.variants.items()})
        for case in table.cases
    ]
    return replace(table, cases=cases)


def _pair(
    kind: Kind,
    name: str,
    size: tuple[int, int],
    *,
    batch: int = 1,
    iters_local: int,
    iters_global: int | None = None,
) -> Case:
    """A row of a network with plain correlation and with GOCor."""
    plain = Work(kind, name, size, batch, iters_local=iters_local, iters_global=iters_global)
    iters = f"{iters_local}" if iters_global is None else f"{iters_global}+{iters_local}"
    many = f"{batch}×" if batch > 1 or kind == "training" else ""
    label = f"{name}, {many}{size[0]}×{size[1]}, {iters} it."
    return Case(label, {"plain": plain, "GOCor": replace(plain, name=f"{name}-gocor")})
