"""TSS: pairs of objects of the same class in three groups, with dense flow on the object, in both directions."""

from functools import partial
from pathlib import Path

from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes
from ..io import read_image
from .layout import Layout, load_flow, load_mask
from .pair import Item, Pair, PairDataset

WHERE = "https://taniai.space/projects/cvpr16_dccs/ (TSS_CVPR2016)"
GROUPS = ("FG3DCar", "JODS", "PASCAL")


def tss(root: PathLike) -> PairDataset:
    """Read the folders `FG3DCar`, `JODS` and `PASCAL`, in which each pair has a folder.

    That folder holds `image1.png`, `image2.png`, `flow1.flo`, `flow2.flo`, `mask1.png`, `mask2.png` and `flip_gt.txt`.
    The flow is valid on the object of the reference. `mirrored` tells whether the two objects face opposite ways.
    """
    layout = Layout("TSS", root, inside="*/*/flow1.flo", names=("TSS_CVPR2016", "tss"), where=WHERE)
    for group in GROUPS:
        layout.need(group)
    items = []
    for group in GROUPS:
        for folder in sorted(path.parent for path in layout.root.glob(f"{group}/*/image1.png")):
            for kind in ("image2.png", "flow1.flo", "flow2.flo", "mask1.png", "mask2.png"):
                layout.need(folder.relative_to(layout.root) / kind)
            for first, second in ((1, 2), (2, 1)):
                name = f"{group}_{folder.name}_{first}{second}"
                items.append(Item(name, partial(_read, name, group, folder, first, second), group))
    if not items:
        raise layout.missing("any pair")
    return PairDataset("tss", items)


def _read(name: str, group: str, folder: Path, first: int, second: int) -> Pair:
    reference, query = (read_image(folder / f"image{number}.png") for number in (first, second))
    flow, known = load_flow(folder / f"flow{first}.flo")
    mask = load_mask(folder / f"mask{first}.png")
    if mask.shape != known.shape:
        raise InputError(f"{folder}: mask{first}.png has {mask.shape} pixels, flow{first}.flo has {known.shape}")
    note = folder / "flip_gt.txt"
    mirrored = read_bytes(note).strip() == b"1" if note.is_file() else None
    valid = known & mask
    return Pair(name, reference, query, flow * valid[..., None], valid, group=group, mirrored=mirrored)
