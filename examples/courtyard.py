"""Render two views of a courtyard with their exact flow: the pair of pictures that ships with gocor.

The surfaces show photographs of the package scikit-image that are CC0 or in the public domain, so the pictures are free
to use:

    pip install scikit-image
    python examples/courtyard.py -o courtyard            # NAME/reference.jpg, NAME/query.jpg and NAME/flow.flo

`true_flow` of `raytracer.py` needs no photographs: it traces the geometry alone.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from raytracer import Ball, Box, Camera, Column, Floats, Paint, Solid, render, true_flow

from gocor.data.io import read_image, write_flow, write_image

# File of each photograph in `skimage/data`.
PHOTOS = {
    "brick": "brick.png",  # CC0, CC0Textures
    "gravel": "gravel.png",  # CC0, CC0Textures
    "grass": "grass.png",  # CC0, linolafett
    "coffee": "coffee.png",  # CC0, Rachel Michetti
    "cat": "chelsea.png",  # CC0, Stefan van der Walt
    "astronaut": "astronaut.png",  # public domain, NASA
    "galaxies": "hubble_deep_field.jpg",  # public domain, NASA
    "rocket": "rocket.jpg",  # public domain, SpaceX
    "retina": "retina.jpg",  # CC0, Mikael Häggström
    "man": "camera.png",  # CC0, Lav Varshney
}
RED, SAND, GREEN, GREY = (1.05, 0.62, 0.45), (1.0, 0.86, 0.66), (0.45, 0.72, 0.30), (0.80, 0.80, 0.82)

SCENE: tuple[Solid, ...] = (
    Box((0, 0.5, 6), (12, 0.5, 12), Paint("gravel", 1.6, SAND)),  # ground
    Box((0, -2.2, 8.2), (8, 2.4, 0.2), Paint("brick", 1.5, RED)),  # wall at the back
    Box((-4.4, -2.2, 4), (0.2, 2.4, 6), Paint("brick", 1.5, SAND)),  # wall on the left
    Box((1.0, 0, 7.0), (2.2, 0.12, 0.9), Paint("grass", 1.1, GREEN)),  # lawn
    Box((-2.4, -1.75, 7.96), (0.9, 0.62, 0.05), Paint("cat")),  # pictures on the wall
    Box((0.1, -1.9, 7.96), (0.72, 0.72, 0.05), Paint("astronaut")),
    Box((2.6, -1.8, 7.96), (1.05, 0.70, 0.05), Paint("rocket")),
    Column((-1.35, 6.3), 0.22, 5, Paint("gravel", 0.9, GREY)),
    Column((3.9, 5.6), 0.22, 5, Paint("gravel", 0.9, GREY)),
    Box((-2.6, -0.45, 5.2), (0.45, 0.45, 0.45), Paint("coffee"), angle=24),  # crates
    Box((-2.75, -1.2, 5.25), (0.30, 0.30, 0.30), Paint("galaxies"), angle=-12),
    Box((0.75, -0.40, 4.6), (0.55, 0.40, 0.40), Paint("man", 0, SAND), angle=-31),
    Box((2.7, -0.50, 5.9), (0.50, 0.50, 0.50), Paint("coffee"), angle=14),
    Ball((2.68, -1.34, 5.9), 0.34, Paint("galaxies", 0, (1.5, 1.5, 1.5))),
    Ball((-0.75, -0.36, 4.1), 0.36, Paint("retina")),
    Ball((1.95, -0.28, 3.9), 0.28, Paint("brick", 0, GREEN)),
)

LEFT = Camera((-1.3, -1.55, 0.1), (0.0, -1.0, 6), view=58)
MIDDLE = Camera((-0.2, -1.70, 0.45), (-0.05, -0.95, 6), view=58, exposure=(1.15, 1.05, 0.92))
RIGHT = Camera((1.5, -1.75, 0.6), (-0.15, -0.95, 6), view=58)
PAIRS: dict[str, tuple[Camera, Camera]] = {
    "views": (LEFT, MIDDLE),  # ships as src/gocor/assets
    "wide": (LEFT, RIGHT),
    "light": (LEFT, replace(LEFT, position=(-0.9, -1.5, 0.2), exposure=(0.30, 0.24, 0.20))),
    "zoom": (LEFT, replace(LEFT, position=(-0.7, -1.4, 1.2), target=(0.7, -1.0, 6), view=34)),
    "turned": (LEFT, replace(RIGHT, position=(0.3, -1.6, 0.4), roll=50)),
    "video": (LEFT, replace(LEFT, position=(-1.05, -1.5, 0.25))),
}


def read_photos(folder: Path) -> dict[str, Floats]:
    """The photographs, `(H, W, 3)`, in linear light."""
    pictures = {name: read_image(folder / file) for name, file in PHOTOS.items()}
    pictures["brick"] = pictures["brick"].swapaxes(0, 1)  # its courses are upright
    return {name: (picture.astype(np.float32) / 255) ** 2.2 for name, picture in pictures.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Render pairs and write them as files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(PAIRS), help=f"of {', '.join(PAIRS)}; default: all")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write to")
    parser.add_argument("--photos", type=Path, help="skimage/data; default: that of the installed scikit-image")
    parser.add_argument("--samples", type=int, default=5, help="the square of it is the number of rays a pixel")
    options = parser.parse_args(arguments)
    folder = options.photos
    if folder is None:
        import skimage

        folder = Path(skimage.__file__).parent / "data"
    photos = read_photos(folder)
    for name in options.names:
        target = options.output / name
        target.mkdir(parents=True, exist_ok=True)
        reference, query = PAIRS[name]
        for seed, (file, camera) in enumerate({"reference.jpg": reference, "query.jpg": query}.items()):
            write_image(target / file, render(SCENE, camera, photos, samples=options.samples, seed=seed), quality=90)
        flow, seen = true_flow(SCENE, reference, query)
        write_flow(target / "flow.flo", flow.transpose(2, 0, 1), seen)
        print(f"wrote {target}: {seen.mean():.0%} of the reference is visible in the query")


if __name__ == "__main__":
    main()
