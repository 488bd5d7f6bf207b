"""Tiny synthetic samples in the public folder layouts, and the location of the real samples.

Every synthetic pair is a picture and the same picture shifted.
"""

import csv
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from gocor.data.datasets import DATASETS
from gocor.data.io import write_flow, write_image

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared"
REAL = Path(os.environ.get("GOCOR_EVAL_DATA", SHARED / "data" / "eval"))
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real samples in {REAL}: set GOCOR_EVAL_DATA")

HEIGHT, WIDTH = 40, 56
SHIFT = (5, -3)  # flow of all synthetic pairs: query(p + SHIFT) = reference(p)
OPTIONS = {  # of readers whose defaults do not fit the samples below
    "flyingthings3d": {"split": "TRAIN"},
}


def texture(seed=0, height=HEIGHT, width=WIDTH):
    noise = np.random.default_rng(seed).integers(0, 256, (height // 4 + 1, width // 4 + 1, 3)).astype(np.uint8)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)


def pictures(seed=0, height=HEIGHT, width=WIDTH, shift=SHIFT):
    canvas = texture(seed, height + 32, width + 32)
    crop = lambda x, y: np.ascontiguousarray(canvas[16 + y : 16 + y + height, 16 + x : 16 + x + width])  # noqa: E731
    return crop(0, 0), crop(-shift[0], -shift[1])


def constant(height=HEIGHT, width=WIDTH, shift=SHIFT):
    return np.broadcast_to(np.array(shift, np.float32).reshape(2, 1, 1), (2, height, width)).copy()


def put(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".ppm":
        cv2.imwrite(str(path), image[..., ::-1])
    else:
        write_image(path, image)


def put_flow(path, flow, valid=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_flow(path, flow, valid)


def mask(condition):
    return np.repeat(np.where(condition, 255, 0).astype(np.uint8)[..., None], 3, 2)


def hpatches(root):
    for seed, name in enumerate(("v_one", "v_two", "i_three")):
        first, other = pictures(seed)
        put(root / name / "1.ppm", first)
        for view in range(2, 7):
            put(root / name / f"{view}.ppm", other)
            (root / name / f"H_1_{view}").write_text(f"1 0 {SHIFT[0]}\n0 1 {SHIFT[1]}\n0 0 1\n")


def kitti(root, folder):
    for number in ("000000", "000001"):
        reference, query = pictures(int(number))
        training = root / "training"
        put(training / folder / f"{number}_10.png", reference)
        put(training / folder / f"{number}_11.png", query)
        known = np.ones((HEIGHT, WIDTH), bool)
        known[::3] = False
        put_flow(training / "flow_occ" / f"{number}_10.png", constant(), known)
        known = known.copy()
        known[:, :10] = False
        put_flow(training / "flow_noc" / f"{number}_10.png", constant(), known)


def sintel(root):
    training = root / "training"
    for frame in (1, 2):
        stem = f"frame_{frame:04d}"
        put_flow(training / "flow" / "cave" / f"{stem}.flo", constant())
        occluded = np.zeros((HEIGHT, WIDTH), bool)
        occluded[:, -8:] = True
        put(training / "occlusions" / "cave" / f"{stem}.png", mask(occluded))
        put(training / "invalid" / "cave" / f"{stem}.png", mask(np.arange(HEIGHT)[:, None] * np.ones(WIDTH) < 2))
    for render in ("clean", "final"):
        canvas = texture(7, HEIGHT + 40, WIDTH + 40)
        for frame in (1, 2, 3):
            x, y = 20 - SHIFT[0] * (frame - 1), 20 - SHIFT[1] * (frame - 1)
            put(training / render / "cave" / f"frame_{frame:04d}.png", canvas[y : y + HEIGHT, x : x + WIDTH].copy())


def middlebury(root):
    reference, query = pictures()
    put(root / "other-data" / "Grove2" / "frame10.png", reference)
    put(root / "other-data" / "Grove2" / "frame11.png", query)
    put_flow(root / "other-gt-flow" / "Grove2" / "flow10.flo", constant())


def stereo(root):
    folder = root / "trainingQ" / "Adirondack"
    reference, query = pictures(shift=(-6, 0))
    put(folder / "im0.png", reference)
    put(folder / "im1.png", query)
    disparity = np.full((HEIGHT, WIDTH), 6, np.float32)
    disparity[0, :5] = np.inf
    header = f"Pf\n{WIDTH} {HEIGHT}\n-1.0\n".encode()
    (folder / "disp0GT.pfm").write_bytes(header + disparity[::-1].astype("<f4").tobytes())
    seen = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    seen[:, :7] = 128
    put(folder / "mask0nocc.png", seen)


def flyingchairs(root):
    for number in (1, 2, 3):
        reference, query = pictures(number)
        put(root / "data" / f"{number:05d}_img1.ppm", reference)
        put(root / "data" / f"{number:05d}_img2.ppm", query)
        put_flow(root / "data" / f"{number:05d}_flow.flo", constant())
    (root / "FlyingChairs_train_val.txt").write_text("1\n2\n1\n")


def flyingthings3d(root):
    canvas = texture(3, HEIGHT + 40, WIDTH + 40)
    for split in ("TRAIN", "TEST"):
        for frame in (6, 7, 8):
            x, y = 20 - SHIFT[0] * (frame - 6), 20 - SHIFT[1] * (frame - 6)
            crop = canvas[y : y + HEIGHT, x : x + WIDTH].copy()
            put(root / "frames_cleanpass" / split / "A" / "0000" / "left" / f"{frame:04d}.png", crop)
            for name, sign in (("into_future", 1), ("into_past", -1)):
                file = f"OpticalFlow{'IntoFuture' if sign > 0 else 'IntoPast'}_{frame:04d}_L.pfm"
                flow = sign * constant()
                values = np.concatenate([flow, np.zeros((1, HEIGHT, WIDTH), np.float32)]).transpose(1, 2, 0)
                path = root / "optical_flow" / split / "A" / "0000" / name / "left" / file
                path.parent.mkdir(parents=True, exist_ok=True)
                header = f"PF\n{WIDTH} {HEIGHT}\n-1.0\n".encode()
                path.write_bytes(header + values[::-1].astype("<f4").tobytes())


def hd1k(root):
    canvas = texture(4, HEIGHT + 40, WIDTH + 40)
    for frame in (10, 11, 12):
        x, y = 20 - SHIFT[0] * (frame - 10), 20 - SHIFT[1] * (frame - 10)
        put(root / "hd1k_input" / "image_2" / f"000003_{frame:04d}.png", canvas[y : y + HEIGHT, x : x + WIDTH].copy())
        put_flow(root / "hd1k_flow_gt" / "flow_occ" / f"000003_{frame:04d}.png", constant())


def tss(root):
    for group in ("FG3DCar", "JODS", "PASCAL"):
        folder = root / group / "pair_0"
        first, second = pictures(len(group), height=HEIGHT, width=WIDTH)
        put(folder / "image1.png", first)
        put(folder / "image2.png", second[: HEIGHT - 4])  # images of a pair differ in size
        here = np.zeros((HEIGHT, WIDTH), bool)
        here[12:28, 10:40] = True
        there = np.roll(here, SHIFT[::-1], (0, 1))
        put_flow(folder / "flow1.flo", constant(), here)
        put_flow(folder / "flow2.flo", -constant()[:, : HEIGHT - 4], there[: HEIGHT - 4])
        put(folder / "mask1.png", mask(here))
        put(folder / "mask2.png", mask(there)[: HEIGHT - 4])
        (folder / "flip_gt.txt").write_text("1\n" if group == "JODS" else "0\n")


def megadepth(root):
    points = np.array([[10, 12], [30, 20], [44, 33], [20.25, 25.25]], float)
    (root / "test1600Pairs").mkdir(parents=True)
    with (root / "test1600Pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "source_image", "target_image", "scene", "XA", "YA", "XB", "YB"])
        for number, scene in enumerate(("/", "0015")):
            reference, query = pictures(number)
            folder = root / "test1600Pairs" / ("" if scene == "/" else scene)
            put(folder / f"b{number}.png", reference)
            put(folder / f"a{number}.png", query)
            moved = points + SHIFT
            columns = [";".join(map(str, values)) for values in (*moved.T, *points.T)]
            writer.writerow([number, f"a{number}.png", f"b{number}.png", scene, *columns])


def eth3d(root):
    """Frames of a camera that moves parallel to a plane: every point moves by SHIFT within 3 frames.

    A second camera of the rig, with a wider field of view, takes one image at the time of the first.
    """
    for sequence in ("delivery_area", "forest"):
        folder = root / sequence
        model = folder / "rig_calibration_undistorted"
        model.mkdir(parents=True)
        size = f"PINHOLE {WIDTH} {HEIGHT}"
        (model / "cameras.txt").write_text(f"# cameras\n0 {size} 50 50 28.5 20.5\n1 {size} 25 25 28.5 20.5\n")
        canvas = texture(len(sequence), HEIGHT + 80, WIDTH + 80)
        lines, world = ["# images", "#"], [(7, 30.5, 20.5), (8, 25.75, 12.25), (9, 34.5, 28.5)]
        for index in range(21):
            camera, frame = (0, index) if index < 20 else (1, 3)
            x, y = (round(axis * frame / 3) for axis in SHIFT)
            name = f"images_rig_cam{4 + camera}_undistorted/{1000 + (frame if camera == 0 else 0)}.png"
            put(folder / "images" / name, canvas[40 - y : 40 - y + HEIGHT, 40 - x : 40 - x + WIDTH].copy())
            lines.append(f"{index + 1} 1 0 0 0 {x / 50} {y / 50} 0 {camera} {name}")
            keypoints = [f"{u + x} {v + y} {number}" for number, u, v in world] + [f"{3 + frame} 5 -1"]
            lines.append(" ".join(keypoints))
        (model / "images.txt").write_text("\n".join(lines) + "\n")
        (model / "points3D.txt").write_text("# points\n")


def manifest(root):
    """Three pairs, one for each kind of ground truth."""
    root.mkdir(parents=True, exist_ok=True)
    for number in (1, 2, 3):
        reference, query = pictures(number)
        put(root / f"a{number}.png", reference)
        put(root / f"b{number}.png", query)
    put_flow(root / "1.flo", constant())
    (root / "2.csv").write_text(f"x,y,x_query,y_query\n10,12,{10 + SHIFT[0]},{12 + SHIFT[1]}\n20,30.5,25,27.5\n")
    (root / "3.txt").write_text(f"1 0 {SHIFT[0]}\n0 1 {SHIFT[1]}\n0 0 1\n")
    (root / "pairs.csv").write_text(
        "reference,query,name,flow,points,homography\n"
        "a1.png,b1.png,dense,1.flo,,\n"
        "a2.png,b2.png,sparse,,2.csv,\n"
        "a3.png,b3.png,,,,3.txt\n"
    )


WRITERS = {
    "hpatches": hpatches,
    "kitti2012": lambda root: kitti(root, "colored_0"),
    "kitti2015": lambda root: kitti(root, "image_2"),
    "sintel": sintel,
    "middlebury": middlebury,
    "stereo": stereo,
    "flyingchairs": flyingchairs,
    "flyingthings3d": flyingthings3d,
    "hd1k": hd1k,
    "tss": tss,
    "megadepth": megadepth,
    "eth3d": eth3d,
    "manifest": manifest,
}
assert WRITERS.keys() == DATASETS.keys()


def write_sample(name, root):
    """Write a sample of a data set; returns the path for its reader."""
    WRITERS[name](root)
    return root / "pairs.csv" if name == "manifest" else root
