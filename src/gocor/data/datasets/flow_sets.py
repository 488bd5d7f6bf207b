"""Optical flow: KITTI 2012 and 2015, Sintel, Middlebury, FlyingChairs, FlyingThings3D, HD1K; and Middlebury stereo."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from ...utils.arrays import FlowField, Mask
from ...utils.checks import check_choice
from ...utils.errors import InputError
from ...utils.files import PathLike, read_bytes
from ..io import read_image
from .layout import Layout, image_in, load_flow, load_mask
from .pair import Item, Pair, PairDataset

KITTI_2012 = "https://www.cvlibs.net/datasets/kitti/eval_stereo_flow.php?benchmark=flow"
KITTI_2015 = "https://www.cvlibs.net/datasets/kitti/eval_scene_flow.php?benchmark=flow"
SINTEL = "http://sintel.is.tue.mpg.de"
MIDDLEBURY_FLOW = "https://vision.middlebury.edu/flow/data/"
MIDDLEBURY_STEREO = "https://vision.middlebury.edu/stereo/submit3/"
CHAIRS = "https://lmb.informatik.uni-freiburg.de/resources/datasets/FlyingChairs.en.html"
THINGS = "https://lmb.informatik.uni-freiburg.de/resources/datasets/SceneFlowDatasets.en.html"
HD1K = "http://hci-benchmark.iwr.uni-heidelberg.de"

Masks = Callable[[FlowField, Mask], tuple[Mask, Mask]]  # flow and its known pixels → valid and occluded pixels


def kitti2012(root: PathLike, *, images: Literal["auto", "colored_0", "image_0"] = "auto") -> PairDataset:
    """KITTI flow 2012, training split: frames 10 → 11 with the ground truth `flow_occ`.

    Pixels that `flow_noc` lacks are occluded.

    Args:
        root: the folder of the data set.
        images: colour or grey images; by default colour if the folder exists.
    """
    check_choice("images", images, ("auto", "colored_0", "image_0"))
    layout = Layout("KITTI 2012", root, inside="training/flow_occ", names=("KITTI_2012", "kitti2012"), where=KITTI_2012)
    if images == "auto":
        images = "colored_0" if (layout.root / "training" / "colored_0").is_dir() else "image_0"
    return _kitti("kitti2012", layout, images)


def kitti2015(root: PathLike) -> PairDataset:
    """KITTI flow 2015, training split: colour frames 10 → 11, with occlusions as in `kitti2012`."""
    layout = Layout("KITTI 2015", root, inside="training/flow_occ", names=("KITTI_2015", "kitti2015"), where=KITTI_2015)
    return _kitti("kitti2015", layout, "image_2")


def _kitti(name: str, layout: Layout, images: str) -> PairDataset:
    layout.need(f"training/{images}")
    layout.need("training/flow_noc")
    items = []
    for truth in layout.some("training/flow_occ/*_10.png"):
        number = truth.name.removesuffix("_10.png")
        reference, query = (layout.need(f"training/{images}/{number}_{frame}.png") for frame in (10, 11))
        unoccluded = layout.need(f"training/flow_noc/{truth.name}")
        items.append(_item(number, reference, query, truth, masks=partial(_kitti_masks, unoccluded)))
    return PairDataset(name, items)


def _kitti_masks(unoccluded: Path, flow: FlowField, known: Mask) -> tuple[Mask, Mask]:
    visible = load_flow(unoccluded)[1]
    _check_mask(unoccluded, visible, known)
    return known, known & ~visible


def sintel(root: PathLike, *, render: Literal["clean", "final"] = "clean") -> PairDataset:
    """MPI-Sintel, training split: frames k → k+1 of a rendering pass; pixels of the mask `invalid` are not valid."""
    check_choice("render", render, ("clean", "final"))
    names = ("MPI-Sintel-complete", "MPI-Sintel", "sintel")
    layout = Layout("MPI-Sintel", root, inside="training/flow", names=names, where=SINTEL)
    folder = layout.need(f"training/{render}")
    items = []
    for truth in layout.some("training/flow/*/frame_*.flo"):
        scene, number = truth.parent.name, truth.stem.removeprefix("frame_")
        if not re.fullmatch(r"\d{1,9}", number, re.ASCII):
            continue
        frame = int(number)
        reference, query = (folder / scene / f"frame_{number:04d}.png" for number in (frame, frame + 1))
        if not reference.is_file() or not query.is_file():  # a partial copy of the data set may lack scenes
            continue
        invalid, occlusions = (
            layout.need(f"training/{kind}/{scene}/{truth.stem}.png") for kind in ("invalid", "occlusions")
        )
        masks = partial(_sintel_masks, invalid, occlusions)
        items.append(_item(f"{scene}_{frame:04d}", reference, query, truth, group=scene, masks=masks))
    if not items:
        raise layout.missing(f"any pair of frames in training/{render}")
    return PairDataset(f"sintel-{render}", items)


def _sintel_masks(invalid: Path, occlusions: Path, flow: FlowField, known: Mask) -> tuple[Mask, Mask]:
    unknown = load_mask(invalid)
    _check_mask(invalid, unknown, known)
    return known & ~unknown, load_mask(occlusions)


def middlebury(root: PathLike) -> PairDataset:
    """Middlebury flow, sequences with public ground truth: frames 10 → 11; occlusions are not known."""
    layout = Layout("Middlebury flow", root, inside="other-gt-flow", names=("middlebury",), where=MIDDLEBURY_FLOW)
    items = []
    for truth in layout.some("other-gt-flow/*/flow10.flo"):
        scene = truth.parent.name
        reference, query = (layout.need(f"other-data/{scene}/frame{number}.png") for number in (10, 11))
        items.append(_item(scene, reference, query, truth))
    return PairDataset("middlebury", items)


def stereo(root: PathLike, *, resolution: Literal["Q", "H", "F"] = "Q") -> PairDataset:
    """Middlebury stereo v3, training split: im0 → im1 with the flow (−disparity, 0).

    Pixels that are not white in `mask0nocc` are occluded.
    """
    check_choice("resolution", resolution, ("Q", "H", "F"))
    folder, names = f"training{resolution}", ("MiddEval3", "stereo", "middlebury")
    layout = Layout("Middlebury stereo v3", root, inside=folder, names=names, where=MIDDLEBURY_STEREO)
    items = []
    for truth in layout.some(f"{folder}/*/disp0GT.pfm"):
        scene = truth.parent.name
        reference, query, visible = (
            layout.need(f"{folder}/{scene}/{name}.png") for name in ("im0", "im1", "mask0nocc")
        )
        items.append(_item(scene, reference, query, truth, masks=partial(_stereo_masks, visible)))
    return PairDataset("stereo", items)


def _stereo_masks(visible: Path, flow: FlowField, known: Mask) -> tuple[Mask, Mask]:
    valid, mask = known & (flow[..., 0] < 0), read_image(visible)[..., 0]
    _check_mask(visible, mask, known)
    return valid, valid & (mask != 255)  # 128 is occluded, 0 is unknown


def flyingchairs(root: PathLike, *, split: Literal["all", "train", "val"] = "all") -> PairDataset:
    """FlyingChairs: img1 → img2; `FlyingChairs_train_val.txt` holds the split, 1 for training and 2 for validation."""
    check_choice("split", split, ("all", "train", "val"))
    names = ("FlyingChairs_release", "flyingchairs")
    layout = Layout("FlyingChairs", root, inside="data/*_flow.flo", names=names, where=CHAIRS)
    truths = layout.some("data/*_flow.flo")
    if split != "all":
        file = "FlyingChairs_train_val.txt"  # lies in either folder, depending on the source of the data
        listed = layout.root / "data" / file if (layout.root / "data" / file).is_file() else layout.need(file)
        kinds = read_bytes(listed).decode("ascii", "replace").split()
        if len(kinds) != len(truths):
            raise InputError(f"{listed} has {len(kinds)} lines, but there are {len(truths)} pairs")
        wanted = "1" if split == "train" else "2"
        truths = [truth for truth, kind in zip(truths, kinds, strict=True) if kind == wanted]
    items = []
    for truth in truths:
        name = truth.name.removesuffix("_flow.flo")
        reference, query = (layout.image(truth.parent, f"{name}_img{number}") for number in (1, 2))
        items.append(_item(name, reference, query, truth))
    return PairDataset("flyingchairs", items)


def flyingthings3d(
    root: PathLike,
    *,
    split: Literal["TRAIN", "TEST"] = "TRAIN",
    render: Literal["clean", "final"] = "clean",
    camera: Literal["left", "right"] = "left",
    direction: Literal["into_future", "into_past"] = "into_future",
) -> PairDataset:
    """FlyingThings3D, the full data set: consecutive frames of one camera, forward or backward in time."""
    check_choice("split", split, ("TRAIN", "TEST"))
    check_choice("render", render, ("clean", "final"))
    check_choice("camera", camera, ("left", "right"))
    check_choice("direction", direction, ("into_future", "into_past"))
    layout = Layout("FlyingThings3D", root, inside="optical_flow", names=("FlyingThings3D",), where=THINGS)
    layout.need(f"frames_{render}pass/{split}")
    step = 1 if direction == "into_future" else -1
    items = []
    for truth in layout.some(f"optical_flow/{split}/*/*/{direction}/{camera}/OpticalFlow*.pfm"):
        found = re.search(r"_(\d{4})_[LR]\.pfm$", truth.name)
        if found is None:
            continue
        subset, scene = truth.parts[-5:-3]
        frames = layout.root / f"frames_{render}pass" / split / subset / scene / camera
        query = image_in(frames, f"{int(found[1]) + step:04d}")
        if query is None:  # the last frame of a scene has a flow but no next frame
            continue
        group = f"{subset}_{scene}"
        items.append(_item(f"{group}_{found[1]}", layout.image(frames, found[1]), query, truth, group=group))
    if not items:
        raise layout.missing(f"any pair of frames in frames_{render}pass/{split}")
    return PairDataset("flyingthings3d", items)


def hd1k(root: PathLike) -> PairDataset:
    """HD1K, training split: consecutive frames of a sequence with the ground truth `flow_occ`."""
    layout = Layout("HD1K", root, inside="hd1k_flow_gt/flow_occ", names=("HD1K", "hd1k"), where=HD1K)
    frames = layout.need("hd1k_input/image_2")
    items = []
    for truth in layout.some("hd1k_flow_gt/flow_occ/*_*.png"):
        sequence, _, frame = truth.stem.partition("_")
        if not re.fullmatch(r"\d{1,9}", frame, re.ASCII):
            continue
        query = image_in(frames, f"{sequence}_{int(frame) + 1:04d}")
        if query is not None:  # the last frame of a sequence has no next frame
            items.append(_item(truth.stem, layout.image(frames, truth.stem), query, truth, group=sequence))
    if not items:
        raise layout.missing("any pair of frames in hd1k_input/image_2")
    return PairDataset("hd1k", items)


def _check_mask(path: Path, mask: NDArray[Any], known: Mask) -> None:
    if mask.shape != known.shape:
        raise InputError(f"{path} has {mask.shape} pixels, the flow has {known.shape}")


def _item(name: str, reference: Path, query: Path, truth: Path, *, group: str = "", masks: Masks | None = None) -> Item:
    return Item(name, partial(_read, name, reference, query, truth, group, masks), group)


def _read(name: str, reference: Path, query: Path, truth: Path, group: str, masks: Masks | None) -> Pair:
    flow, valid = load_flow(truth)
    valid, occluded = (valid, None) if masks is None else masks(flow, valid)
    return Pair(name, read_image(reference), read_image(query), flow * valid[..., None], valid, occluded, group=group)
