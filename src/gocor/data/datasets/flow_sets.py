"""Optical flow: KITTI 2012 and 2015, Sintel, Middlebury, FlyingChairs, FlyingThings3D, HD1K; and Middlebury stereo."""

import re
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

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
        pictures = [layout.need(f"training/{images}/{number}_{frame}.png") for frame in (10, 11)]
        unoccluded = layout.need(f"training/flow_noc/{truth.name}")
        items.append(Item(number, partial(_read_kitti, number, pictures[0], pictures[1], truth, unoccluded)))
    return PairDataset(name, items)


def _read_kitti(name: str, reference: Path, query: Path, truth: Path, unoccluded: Path) -> Pair:
    flow, valid = load_flow(truth)
    return Pair(name, read_image(reference), read_image(query), flow, valid, valid & ~load_flow(unoccluded)[1])


def sintel(root: PathLike, *, render: Literal["clean", "final"] = "clean") -> PairDataset:
    """MPI-Sintel, training split: frames k → k+1 of a rendering pass; pixels of the mask `invalid` are not valid."""
    check_choice("render", render, ("clean", "final"))
    layout = Layout(
        "MPI-Sintel", root, inside="training/flow", names=("MPI-Sintel-complete", "MPI-Sintel", "sintel"), where=SINTEL
    )
    folder = layout.need(f"training/{render}")
    items = []
    for truth in layout.some("training/flow/*/frame_*.flo"):
        scene, frame = truth.parent.name, int(truth.stem.removeprefix("frame_"))
        pictures = [folder / scene / f"frame_{number:04d}.png" for number in (frame, frame + 1)]
        if not all(path.is_file() for path in pictures):  # a partial copy of the data set may lack scenes
            continue
        masks = [layout.need(f"training/{kind}/{scene}/{truth.stem}.png") for kind in ("invalid", "occlusions")]
        name = f"{scene}_{frame:04d}"
        items.append(
            Item(name, partial(_read_sintel, name, scene, pictures[0], pictures[1], truth, masks[0], masks[1]), scene)
        )
    if not items:
        raise layout.missing(f"any pair of frames in training/{render}")
    return PairDataset(f"sintel-{render}", items)


def _read_sintel(
    name: str, scene: str, reference: Path, query: Path, truth: Path, invalid: Path, occluded: Path
) -> Pair:
    flow, known = load_flow(truth)
    valid = known & ~load_mask(invalid)
    return Pair(name, read_image(reference), read_image(query), flow, valid, load_mask(occluded), group=scene)


def middlebury(root: PathLike) -> PairDataset:
    """Middlebury flow, sequences with public ground truth: frames 10 → 11; occlusions are not known."""
    layout = Layout("Middlebury flow", root, inside="other-gt-flow", names=("middlebury",), where=MIDDLEBURY_FLOW)
    items = []
    for truth in layout.some("other-gt-flow/*/flow10.flo"):
        scene = truth.parent.name
        pictures = [layout.need(f"other-data/{scene}/frame{number}.png") for number in (10, 11)]
        items.append(Item(scene, partial(_read_plain, scene, pictures[0], pictures[1], truth)))
    return PairDataset("middlebury", items)


def stereo(root: PathLike, *, resolution: Literal["Q", "H", "F"] = "Q") -> PairDataset:
    """Middlebury stereo v3, training split: im0 → im1 with the flow (−disparity, 0).

    Pixels that are not white in `mask0nocc` are occluded.
    """
    check_choice("resolution", resolution, ("Q", "H", "F"))
    folder = f"training{resolution}"
    layout = Layout(
        "Middlebury stereo v3",
        root,
        inside=folder,
        names=("MiddEval3", "stereo", "middlebury"),
        where=MIDDLEBURY_STEREO,
    )
    items = []
    for truth in layout.some(f"{folder}/*/disp0GT.pfm"):
        scene = truth.parent.name
        files = [layout.need(f"{folder}/{scene}/{name}.png") for name in ("im0", "im1", "mask0nocc")]
        items.append(Item(scene, partial(_read_stereo, scene, files[0], files[1], truth, files[2])))
    return PairDataset("stereo", items)


def _read_stereo(name: str, reference: Path, query: Path, truth: Path, unoccluded: Path) -> Pair:
    flow, known = load_flow(truth)
    valid = known & (flow[..., 0] < 0)
    visible = read_image(unoccluded)[..., 0] == 255  # 128 is occluded, 0 is unknown
    return Pair(name, read_image(reference), read_image(query), flow * valid[..., None], valid, valid & ~visible)


def flyingchairs(root: PathLike, *, split: Literal["all", "train", "val"] = "all") -> PairDataset:
    """FlyingChairs: img1 → img2; `FlyingChairs_train_val.txt` holds the split, 1 for training and 2 for validation."""
    check_choice("split", split, ("all", "train", "val"))
    layout = Layout(
        "FlyingChairs", root, inside="data/*_flow.flo", names=("FlyingChairs_release", "flyingchairs"), where=CHAIRS
    )
    truths = layout.some("data/*_flow.flo")
    if split != "all":
        listed = next(
            (
                path
                for folder in (layout.root, layout.root / "data")
                if (path := folder / "FlyingChairs_train_val.txt").is_file()
            ),
            None,
        )
        if listed is None:
            raise layout.missing("FlyingChairs_train_val.txt")
        kinds = read_bytes(listed).decode("ascii", "replace").split()
        if len(kinds) != len(truths):
            raise InputError(f"{listed} has {len(kinds)} lines, but there are {len(truths)} pairs")
        wanted = "1" if split == "train" else "2"
        truths = [truth for truth, kind in zip(truths, kinds, strict=True) if kind == wanted]
    items = []
    for truth in truths:
        name = truth.name.removesuffix("_flow.flo")
        pictures = [image_in(truth.parent, f"{name}_img{number}") for number in (1, 2)]
        if pictures[0] is None or pictures[1] is None:
            raise layout.missing(f"data/{name}_img1.ppm or {name}_img2.ppm")
        items.append(Item(name, partial(_read_plain, name, pictures[0], pictures[1], truth)))
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
        pictures = [image_in(frames, f"{int(found[1]) + move:04d}") for move in (0, step)]
        if pictures[1] is None:  # the last frame of a scene has a flow but no next frame
            continue
        if pictures[0] is None:
            raise layout.missing(frames / f"{found[1]}.png")
        name = f"{subset}_{scene}_{found[1]}"
        group = f"{subset}_{scene}"
        items.append(Item(name, partial(_read_plain, name, pictures[0], pictures[1], truth, group), group))
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
        pictures = [image_in(frames, f"{sequence}_{int(frame) + move:04d}") for move in (0, 1)]
        if pictures[1] is None:  # the last frame of a sequence
            continue
        if pictures[0] is None:
            raise layout.missing(f"hd1k_input/image_2/{truth.stem}.png")
        items.append(
            Item(truth.stem, partial(_read_plain, truth.stem, pictures[0], pictures[1], truth, sequence), sequence)
        )
    if not items:
        raise layout.missing("any pair of frames in hd1k_input/image_2")
    return PairDataset("hd1k", items)


def _read_plain(name: str, reference: Path, query: Path, truth: Path, group: str = "") -> Pair:
    flow, valid = load_flow(truth)
    return Pair(name, read_image(reference), read_image(query), np.asarray(flow), valid, group=group)
