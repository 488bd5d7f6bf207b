"""Inputs that once ended in a traceback, took gigabytes, or hung. They are the first cases of every run.

Those that are too large exceed `worker.LIMIT` by a little, so that they are made quickly.
"""

import json
import pickle
import struct
import zipfile
import zlib
from functools import partial
from typing import Any

from .samples import Files, Payload, Target, torch_file, zipped


def npy(header: str, body: bytes = b"") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + body


def npz(shape: str, body: bytes = b"") -> bytes:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape
    return zipped({"flow.npy": npy(header, body)})


def png(width: int, height: int, pixels: bytes, *extra: tuple[bytes, bytes]) -> bytes:
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        *extra,
        (b"IDAT", zlib.compress(pixels)),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in [*chunks, (b"IEND", b"")]
    )


def coco(segmentation: Any) -> bytes:
    annotation = {"image_id": 1, "area": 500, "segmentation": segmentation}
    return json.dumps({"images": [{"id": 1, "file_name": "a.png"}], "annotations": [annotation]}).encode()


def manifest(**values: Any) -> bytes:
    return json.dumps([{"reference": "a.png", "query": "b.png", **values}]).encode()


def bzip_bomb() -> bytes:
    """A member that promises 10 bytes and holds 20 megabytes."""
    data = bytearray(zipped({"a.png": bytes(2 * 10**7)}, zipfile.ZIP_BZIP2))
    for magic, at in ((b"PK\1\2", 24), (b"PK\3\4", 22)):
        struct.pack_into("<I", data, data.index(magic) + at, 10)
    return bytes(data)


MODEL_FOLDER = "scene/rig_calibration_undistorted"
# Name, target, changed file, and its content or what stands in its place.
CORPUS: tuple[tuple[str, str, str, Any], ...] = (
    ("header that does not parse", "flow .npz", "a.npz", npz("(2,")),
    ("empty array with huge sides", "flow .npz", "a.npz", npz("(0, 60000, 60000), }")),
    ("archive of gigabytes", "flow .npz", "a.npz", partial(npz, "(2, 3000, 3000), }", bytes(8 * 3000**2))),
    ("nested header", "flow .npz", "a.npz", npz("(" * 90)),
    (
        "wrong byte",
        "megadepth",
        "test1600Pairs.csv",
        b"source_image,target_image,scene,XA,YA,XB,YB\n\xff,b,/,1,1,1,1\n",
    ),
    ("short row", "megadepth", "test1600Pairs.csv", b"source_image,target_image,scene,XA,YA,XB,YB\na.png,b.png\n"),
    ("images.txt is a folder", "colmap", f"{MODEL_FOLDER}/images.txt", "folder"),
    ("camera without numbers", "colmap", f"{MODEL_FOLDER}/cameras.txt", b"1 PINHOLE 56 40 x 50 28 20\n"),
    ("camera with few fields", "colmap", f"{MODEL_FOLDER}/cameras.txt", b"1\n"),
    ("pose of zeros", "colmap", f"{MODEL_FOLDER}/images.txt", b"1 0 0 0 0 1 0 0 1 a.png\n1 1 1\n"),
    ("runs without size", "coco", "instances.json", coco({"counts": [1]})),
    ("runs without counts", "coco", "instances.json", coco({"size": [40, 56]})),
    ("huge run", "coco", "instances.json", coco({"size": [40, 56], "counts": [2**70]})),
    ("runs whose sum wraps", "coco", "instances.json", coco({"size": [40, 56], "counts": [2**63 - 1] * 2 + [2242]})),
    ("infinite polygon", "coco", "instances.json", coco([[1e300, 1, 2, -1e300, 5, 5]])),
    ("nested annotations", "coco", "instances.json", b'{"images": ' + b"[" * 100_000),
    ("nested manifest", "manifest json", "m.json", b"[" * 100_000),
    ("flow is a number", "manifest json", "m.json", manifest(flow=1)),
    ("path with NUL", "manifest json", "m.json", manifest(flow="a\0b")),
    ("half of a character", "manifest json", "m.json", manifest(points=[[1, 2, 3, 4]], name="\ud800")),
    ("huge point", "manifest json", "m.json", manifest(points=[[10**400, 1, 2, 3]])),
    ("huge homography", "manifest json", "m.json", manifest(homography=[[1e308] * 3] * 3)),
    ("byte order mark alone", "manifest csv", "points.csv", b"\xef\xbb\xbf"),
    ("long field", "manifest csv", "points.csv", b"x,y,x_query,y_query\n" + b"1" * 140_000 + b",2,3,4\n"),
    ("column twice", "manifest csv", "points.csv", b"x,x,y,x_query,y_query\n1,2,3,4,5\n"),
    ("nested config", "config toml", "config.toml", b"size = " + b"[" * 10_000),
    ("key of many parts", "config toml", "config.toml", b"a." * 100_000 + b"a = 1"),
    ("long number", "config toml", "config.toml", b"size = 1" + b"0" * 5000),
    ("huge number", "config toml", "config.toml", b"lr = 1" + b"0" * 400),
    ("nested result", "done json", "done.json", b"[" * 100_000),
    ("nested record", "log", "log.jsonl", b"[" * 100_000 + b"\n1\n{}\n"),
    ("huge picture", "image png", "a.png", partial(png, 3000, 3000, bytes(3001 * 3000))),
    ("chatty profile", "image png", "a.png", png(4, 4, bytes(20), (b"iCCP", b"x\0\0abc"))),
    ("wrong filter", "image png", "a.png", png(4, 4, b"\x09" * 20)),
    ("pipe", "image jpg", "a.jpg", "fifo"),
    ("signalling NaN", "flow .pfm", "a.pfm", b"PF\n1 1\n-1\n" + b"\x01\0\xa0\x7f" * 3),
    ("endless device", "image jpg", "a.jpg", "endless"),
    ("pipe as archive", "zip", "photos.zip", "fifo"),
    ("pipe as checkpoint", "safetensors", "w.safetensors", "fifo"),
    ("photo of gigabytes", "zip", "photos.zip", partial(zipped, {"a.png": bytes(7 * 10**7)})),
    ("photo that holds more than it promises", "zip", "photos.zip", bzip_bomb),
    ("code", "pth", "w.pth", pickle.dumps({"a": Payload()})),
    ("code in an archive", "training checkpoint", "last.pt", torch_file({"format": Payload()})),
    ("checkpoint without entries", "training checkpoint", "last.pt", torch_file({"format": "gocor-training-1"})),
)


def corpus_files(targets: dict[str, Target], number: int) -> tuple[str, str, Files]:
    """Name, target and files of a case."""
    name, target, changed, content = CORPUS[number]
    return name, target, targets[target].files | {changed: content() if callable(content) else content}
