"""Valid files of every format that is read, made by code, and the functions that read them."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from PIL import ExifTags, Image

from gocor.data.datasets.eth3d import _views, eth3d
from gocor.data.datasets.hpatches import read_homography
from gocor.data.datasets.manifest import manifest
from gocor.data.datasets.megadepth import megadepth
from gocor.data.io import read_flow, read_image, write_flow
from gocor.data.synthetic.objects import ObjectStore
from gocor.data.synthetic.photos import PhotoStore
from gocor.matching.files import read_done
from gocor.models.registry import create_model
from gocor.models.weights import load_weights, save_model
from gocor.pipeline.pairs import find_pairs
from gocor.training.checkpoint import FORMAT, start_network
from gocor.training.config import make_config
from gocor.training.logs import trim_log

MODEL = "basenet-gocor-tiny"
MARKER = "executed"  # folder that a pickle payload would make
HEIGHT, WIDTH = 40, 56

Files = dict[str, Any]  # content by name: bytes, or one of `mutate.SPECIAL`


class Target(NamedTuple):
    """Files that are read together, the names of those that are mutated, and the function that reads them."""

    files: Files
    mutated: tuple[str, ...]
    read: Callable[[Path], Any]


class Payload:
    """Unpickling it would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, (MARKER,)


def picture(channels: int = 3, dtype: type = np.uint8) -> Any:
    random = np.random.default_rng(channels)
    coarse = random.integers(0, 256, (HEIGHT // 4, WIDTH // 4, channels)).astype(np.uint8)
    fine = cv2.resize(coarse, (WIDTH, HEIGHT))
    return fine if dtype == np.uint8 else fine.astype(dtype) * 257


def encoded(suffix: str, *, channels: int = 3, dtype: type = np.uint8, options: tuple[int, ...] = ()) -> bytes:
    pixels = picture(channels, dtype)
    if suffix == ".hdr":
        pixels = pixels.astype(np.float32) / 255
    return cv2.imencode(suffix, pixels, options)[1].tobytes()


def saved(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    """A picture that Pillow writes."""
    stream = io.BytesIO()
    Image.fromarray(picture()).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return stream.getvalue()


def torch_file(content: Any, *, old: bool = False) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream, _use_new_zipfile_serialization=not old)
    return stream.getvalue()


@cache
def network() -> Any:
    torch.manual_seed(0)
    return create_model(MODEL)


def read_pairs(dataset: Any) -> None:
    for item in dataset.items[:2]:
        item.read().truth()


def images() -> dict[str, Target]:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    kinds = {
        "palette.png": saved("PNG", "P", exif=exif),
        "exif.jpg": saved("JPEG", exif=exif),
        "cmyk.jpg": saved("JPEG", "CMYK"),
        "exif.webp": saved("WEBP", exif=exif),
        "deep.tiff": encoded(".tiff", dtype=np.uint16),
        "png": encoded(".png"),
        "rgba.png": encoded(".png", channels=4),
        "deep.png": encoded(".png", dtype=np.uint16),
        "jpg": encoded(".jpg"),
        "progressive.jpg": encoded(".jpg", options=(cv2.IMWRITE_JPEG_PROGRESSIVE, 1)),
        "webp": encoded(".webp"),
        "lossless.webp": encoded(".webp", options=(cv2.IMWRITE_WEBP_QUALITY, 101)),
        **{kind: encoded(f".{kind}") for kind in ("bmp", "tiff", "ppm", "jp2", "gif", "hdr")},
        "pgm": encoded(".pgm", channels=1),
    }
    return {
        f"image {kind}": Target(
            {f"a.{kind}": data}, (f"a.{kind}",), lambda folder, name=f"a.{kind}": read_image(folder / name)
        )
        for kind, data in kinds.items()
    }


def flows(folder: Path) -> dict[str, Target]:
    flow, targets = np.random.default_rng(0).normal(0, 5, (2, 12, 14)).astype(np.float32), {}
    for suffix in (".flo", ".png", ".pfm", ".npz"):
        write_flow(folder / f"a{suffix}", flow, flow[0] < 4)
        data = (folder / f"a{suffix}").read_bytes()
        targets[f"flow {suffix}"] = Target(
            {f"a{suffix}": data}, (f"a{suffix}",), lambda folder, name=f"a{suffix}": read_flow(folder / name)
        )
    return targets


def lists(flo: bytes) -> dict[str, Target]:
    shared = {"a.png": encoded(".png"), "b.png": encoded(".png")}
    points = b"x,y,x_query,y_query\n1,2,3,4\n5.5,6.5,7,8\n"
    matrix = b"1 0 3\n0 1 -2\n0 0 1\n"
    rows = [
        {"reference": "a.png", "query": "b.png", "points": [[1, 2, 3, 4], [5, 6, 7, 8]], "name": "one"},
        {"reference": "a.png", "query": "b.png", "homography": [[1, 0, 3], [0, 1, 2], [0, 0, 1]], "group": "g"},
        {"reference": "a.png", "query": "b.png", "flow": "f.flo", "valid": "a.png", "name": "three"},
    ]
    table = b"reference,query,name,points,homography\na.png,b.png,one,points.csv,\na.png,b.png,two,,h.txt\n"
    return {
        "pairs csv": Target(
            {"pairs.csv": b"reference,query,name\na.png,b.png,one\nb.png,a.png,two\n"},
            ("pairs.csv",),
            lambda folder: list(find_pairs(folder / "pairs.csv", None)),
        ),
        "manifest csv": Target(
            shared | {"m.csv": table, "points.csv": points, "h.txt": matrix},
            ("m.csv", "points.csv", "h.txt"),
            lambda folder: read_pairs(manifest(folder / "m.csv")),
        ),
        "manifest json": Target(
            shared | {"m.json": json.dumps(rows).encode(), "f.flo": flo},
            ("m.json",),
            lambda folder: read_pairs(manifest(folder / "m.json")),
        ),
        "homography": Target({"h.txt": matrix}, ("h.txt",), lambda folder: read_homography(folder / "h.txt")),
    }


def datasets() -> dict[str, Target]:
    shared = {"a.png": encoded(".png"), "b.png": encoded(".png")}
    header = "source_image,target_image,scene,XA,YA,XB,YB\n"
    row = "a.png,b.png,/,1;2;3,4;5;6,7;8;9,1;2;3\n"
    folder = "scene/rig_calibration_undistorted"
    views = "# list\n" + "".join(
        f"{i} 1 0 0 0 {i} 0 0 1 {name}\n1.5 2.5 7 3.5 4.5 8 5 6 -1\n" for i, name in enumerate(("a.png", "b.png"), 1)
    )
    photos = {f"photos/{name}": data for name, data in shared.items()}
    annotations = {
        "images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}],
        "annotations": [
            {"image_id": 1, "area": 500, "iscrowd": 0, "segmentation": [[2, 2, 40, 3, 38, 30, 4, 28]]},
            {"image_id": 2, "area": 500, "segmentation": {"size": [HEIGHT, WIDTH], "counts": [400, 1200, 640]}},
            {"image_id": 2, "area": 500, "segmentation": {"size": [HEIGHT, WIDTH], "counts": "P=P<00"}},
        ],
    }

    def read_colmap(root: Path) -> None:
        _views.cache_clear()
        read_pairs(eth3d(root, interval=1, every=1))

    return {
        "megadepth": Target(
            {"test1600Pairs.csv": (header + row + row).encode()} | {f"test1600Pairs/{k}": v for k, v in shared.items()},
            ("test1600Pairs.csv",),
            lambda root: read_pairs(megadepth(root)),
        ),
        "colmap": Target(
            {f"{folder}/images.txt": views.encode(), f"{folder}/cameras.txt": b"1 PINHOLE 56 40 50 50 28 20\n"}
            | {f"scene/images/{name}": data for name, data in shared.items()},
            (f"{folder}/images.txt", f"{folder}/cameras.txt"),
            read_colmap,
        ),
        "coco": Target(
            {"instances.json": json.dumps(annotations).encode(), **photos},
            ("instances.json",),
            lambda root: ObjectStore.open(root / "instances.json", images=root / "photos", min_area=30, threads=1),
        ),
        "zip": Target(
            {"photos.zip": zipped({"a.png": encoded(".png"), "b/c.jpg": encoded(".jpg"), "../d.bmp": encoded(".bmp")})},
            ("photos.zip",),
            lambda root: PhotoStore.open(root / "photos.zip", max_side=64, threads=1),
        ),
    }


def checkpoints(folder: Path) -> dict[str, Target]:
    save_model(network(), folder / "w.safetensors")
    state = network().state_dict()
    training = {
        "format": FORMAT, "model": MODEL, "config": "", "progress": {"step": 1}, "network": state, "average": state,
    }  # fmt: skip
    return {
        "safetensors": Target(
            {"w.safetensors": (folder / "w.safetensors").read_bytes()},
            ("w.safetensors",),
            lambda root: load_weights(network(), root / "w.safetensors"),
        ),
        "pth": Target(
            {"w.pth": torch_file({"state_dict": {"a": torch.zeros(3, 4), "b": torch.ones(2)}})},
            ("w.pth",),
            lambda root: load_weights(network(), root / "w.pth"),
        ),
        "old pth": Target(
            {"w.pth": torch_file({"a": torch.zeros(3, 4), "b": torch.ones(2)}, old=True)},
            ("w.pth",),
            lambda root: load_weights(network(), root / "w.pth"),
        ),
        "training checkpoint": Target(
            {"last.pt": torch_file(training)}, ("last.pt",), lambda root: start_network(network(), root / "last.pt")
        ),
        "pickle": Target(
            {"w.pth": pickle.dumps({"a": Payload()}, protocol=2)},
            ("w.pth",),
            lambda root: load_weights(network(), root / "w.pth"),
        ),
    }


def runs() -> dict[str, Target]:
    config = f'model = "{MODEL}"\noutput = "out"\ndata = ["photos"]\nsize = [64, 64]\nlr = 1e-3\nbetas = [0.9, 0.99]\n'
    return {
        "config toml": Target(
            {"config.toml": config.encode() + b"steps = 10\ntf32 = true\nmilestones = [0.5]\n"},
            ("config.toml",),
            lambda root: make_config({}, file=root / "config.toml").to_toml(),
        ),
        "done json": Target(
            {"done.json": b'{"files": ["flow.flo"], "model": "x", "n": 1}'},
            ("done.json",),
            lambda root: read_done(root),
        ),
        "log": Target(
            {"log.jsonl": b'{"step": 1, "kind": "train"}\n{"step": 2, "loss": 0.5}\n'},
            ("log.jsonl",),
            lambda root: trim_log(root / "log.jsonl", 1),
        ),
    }


def make_targets(folder: Path) -> dict[str, Target]:
    """All targets; `folder` is for files that are made on the way."""
    flow = flows(folder)
    flo = (folder / "a.flo").read_bytes()
    made = {**images(), **flow, **lists(flo), **datasets(), **checkpoints(folder), **runs()}
    for path in folder.iterdir():
        path.unlink()
    return made
