"""Render pairs of random 3-D scenes with a wide baseline and their exact flow, to measure matchers with.

Walls, ground, boxes and balls show photographs of your own, none of them twice in a scene:

    python examples/wide_scenes.py my_photos -o scenes --pairs 10
    gocor eval manifest --root scenes/pairs.csv --model recurrent-gocor --align -o out
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from raytracer import Ball, Box, Camera, Floats, Paint, Solid, Vector, render, true_flow

from gocor.data.io import write_flow, write_image
from gocor.data.io.images import decode_rgb
from gocor.data.synthetic.sources import ImageFile, list_images
from gocor.training.sources import hold_out

ANGLES = 10, 36  # degrees between the two cameras; the first one is then moved by up to 10 degrees


class Scene:
    """A random scene with two cameras.

    Attributes:
        solids: walls, ground, boxes and balls.
        photos: the photographs on them, in linear light.
        cameras: those of the reference and of the query.
    """

    def __init__(self, files: Sequence[ImageFile], generator: np.random.Generator) -> None:
        self._files, self._generator = files, generator
        self.photos: dict[str, Floats] = {}
        self.solids: list[Solid] = []
        draw = generator.uniform
        for x in (-9, -3, 3, 9):  # panels of the wall at the back, and plates of the ground
            self.solids.append(Box((x, -2.2, 9), (3, 2.7, 0.2), self._paint()))
            self.solids += [Box((x, 0.5, z), (3, 0.5, 2), self._paint()) for z in (2.5, 6.5)]
        for x in (-5.2, 5.2):
            if generator.random() < 0.5:
                self.solids += [Box((x, -2.2, z), (0.2, 2.7, 2), self._paint()) for z in (2.8, 6.8)]
        for _ in range(generator.integers(3, 8)):
            half = draw(0.25, 0.8), draw(0.25, 0.9), draw(0.2, 0.7)
            centre = draw(-3.2, 3.2), -half[1], draw(4.2, 8)
            paint = self._paint()
            self.solids.append(Box(centre, half, paint, angle=draw(-45, 45)))
        for _ in range(generator.integers(0, 3)):
            radius = draw(0.2, 0.5)
            self.solids.append(Ball((draw(-2.5, 2.5), -radius, draw(4.2, 6.5)), radius, self._paint()))
        angle = draw(*ANGLES) * generator.choice([-1, 1])
        target = draw(-0.5, 0.5), -1.2, 6.8
        first = self._camera(target, -angle / 2 + draw(-10, 10), draw(5.6, 7), draw(48, 60), 0.0, (1.0, 1.0, 1.0))
        light = draw(0.75, 1.2) * draw(0.93, 1.07, 3)
        second = self._camera(target, angle / 2, draw(4.6, 7), draw(46, 60), draw(-12, 12), tuple(light))
        self.cameras = first, second

    def _paint(self) -> Paint:
        name = str(len(self.photos))
        picture = decode_rgb(self._files[self._generator.integers(len(self._files))].read())
        self.photos[name] = (picture.astype(np.float32) / 255) ** 2.2
        return Paint(name)

    def _camera(
        self, target: Vector, degrees: float, distance: float, view: float, roll: float, exposure: Vector
    ) -> Camera:
        """A camera on a circle around the target, at a random height."""
        height = self._generator.uniform(1.3, 2.6)
        x, z = distance * np.sin(np.radians(degrees)), distance * np.cos(np.radians(degrees))
        return Camera((target[0] - x, -height, target[2] - z), target, view=view, roll=roll, exposure=exposure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Render pairs and write them with a manifest."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photos", nargs="+", help="folders or zip files of photographs")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write to")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=2, help="the square of it is the number of rays a pixel")
    parser.add_argument("--held-out", action="store_true", help="only photographs that `gocor train` does not train on")
    options = parser.parse_args(arguments)
    files: Sequence[ImageFile] = list_images(options.photos)
    if options.held_out:
        files = hold_out(files)[1]
    generator = np.random.default_rng(options.seed)
    options.output.mkdir(parents=True, exist_ok=True)
    rows = []
    for index in range(options.pairs):
        scene, names = Scene(files, generator), [f"{index}_reference.jpg", f"{index}_query.jpg", f"{index}.flo"]
        for seed, (name, camera) in enumerate(zip(names[:2], scene.cameras, strict=True), 1):
            picture = render(scene.solids, camera, scene.photos, samples=options.samples, seed=seed)
            write_image(options.output / name, picture, quality=92)
        flow, seen = true_flow(scene.solids, *scene.cameras)
        write_flow(options.output / names[2], flow.transpose(2, 0, 1), seen)
        rows.append(names)
        print(f"{names[0]}: {seen.mean():.0%} of the reference is visible in the query", flush=True)
    with (options.output / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["reference", "query", "flow"], *rows])


if __name__ == "__main__":
    main()
