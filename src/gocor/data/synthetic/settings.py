"""Settings of synthetic pairs: the ranges that their parameters are drawn from.

Lengths are in units of r, half of the image's shorter side, so that a preset suits every size: 0.1 is 13 px at 256×256.
`U(±a)` is a uniform random number in [-a, a]. Derive a preset of your own with `dataclasses.replace`.
"""

from dataclasses import dataclass, field

from ...utils.errors import InputError

Range = tuple[float, float]


@dataclass(frozen=True)
class Motion:
    """One kind of background motion; a preset mixes several.

    Coordinates n have their origin in the image's centre and the unit r. The point n of the reference corresponds to
    `M(n + D(n))` in the query. D is non-rigid (a thin-plate spline and a cubic B-spline); `M = P·A` is an affine map A
    followed by a projective map P.

    Attributes:
        weight: relative frequency among the motions of the preset.
        rotation: U(±degrees).
        zoom: scale `exp(U(±zoom))`; above 1 the reference shows more than the query.
        stretch: scales along two orthogonal directions, each uniform in the range.
        stretch_angle: U(±degrees), angle between these directions and the axes.
        shear: U(±), shift of x in proportion to y.
        shift: U(±), for x and y independently.
        horizontal: only x moves, as between rectified stereo images.
        corners: U(±), moves of the image's four corners, for x and y independently. P maps the corners to the moved
            corners. Moves that would fold the image, or nearly so, are halved until they do not.
        corner_step: corner moves are rounded down to multiples of this; 0 does not round.
        inverse_corners: P maps the moved corners to the corners instead.
        plate: standard deviation of the moves of the thin-plate spline's 3×3 control points.
        bend: standard deviation of the B-spline's 7×7 coefficients; the motion has about half of it.
        bend_share: share of the pairs that have the B-spline's motion.
        strength: factor on all of the above moves, uniform in the range.
        window: shares of the photo's width and height that the query shows, around its centre and with any aspect
            ratio; None shows an undistorted part as `Crop` describes.
    """

    weight: float = 1.0
    rotation: float = 0.0
    zoom: float = 0.0
    stretch: Range = (1.0, 1.0)
    stretch_angle: float = 0.0
    shear: float = 0.0
    shift: float = 0.0
    horizontal: bool = False
    corners: float = 0.0
    corner_step: float = 0.0
    inverse_corners: bool = False
    plate: float = 0.0
    bend: float = 0.0
    bend_share: float = 1.0
    strength: Range = (1.0, 1.0)
    window: Range | None = None


@dataclass(frozen=True)
class Crop:
    """The part of the photo that the query shows, for motions without a `window`.

    Attributes:
        share: side of the part, relative to the largest part that fits into the photo; uniform in the range.
        tilt: U(±degrees), rotation of the part.
        flip: probability of mirroring the photo.
    """

    share: Range = (0.5, 1.0)
    tilt: float = 10.0
    flip: float = 0.5


@dataclass(frozen=True)
class Colour:
    """Photometric changes of an image, drawn for reference and query independently.

    Attributes:
        brightness: U(±), relative to the full range 255.
        contrast: factor `exp(U(±))` around mid-grey.
        saturation: factor `max(0, 1 + U(±))`.
        channels: factor `exp(U(±))` for each of R, G and B.
        gamma: exponent `exp(U(±))`.
        grey: probability that both images become grey.
        common: share of the changes of brightness, contrast, saturation, channels and gamma that both images have in
            common: 0 makes them independent, 1 identical.
        exposure: factor `exp(-U(0, exposure))` on all channels; it only darkens, because brighter images saturate.
        light: standard deviation of an illumination field: the logarithm of a factor that varies smoothly over the
            image.
        light_share: probability of an illumination field.
        blur: largest standard deviation of a Gaussian blur in pixels, at most 4; uniform from 0.
        blur_share: probability of a blur.
        noise: largest standard deviation of Gaussian noise, relative to the full range; uniform from 0.
    """

    brightness: float = 0.2
    contrast: float = 0.35
    saturation: float = 0.4
    channels: float = 0.12
    gamma: float = 0.35
    grey: float = 0.05
    common: float = 0.0
    exposure: float = 0.5
    light: float = 0.25
    light_share: float = 0.5
    blur: float = 4.0
    blur_share: float = 0.3
    noise: float = 0.03


@dataclass(frozen=True)
class Objects:
    """Cut-outs that move independently in front of the photo; their order in depth is the same in both images.

    Attributes:
        share: probability that a pair has objects.
        count: smallest and largest number of objects; all numbers are equally likely.
        size: longer side relative to the image's shorter side, log-uniform in the range; None keeps the size that the
            cut-out had in its own photo, relative to images of `native_side` pixels.
        native_side: see `size`.
        large: cut-outs with `size=None` that would cover more than this share of the image are shrunk.
        large_to: range of the share that they are shrunk to, uniform.
        spin: U(±degrees), rotation of the cut-out in the reference.
        flip: probability of mirroring a cut-out.
        near: probability that an object moves by `shift`; otherwise it moves to a random place in the query.
        shift: range of the length of the move, log-uniform and in any direction; if the range starts at 0, the move is
            U(±) for x and y independently.
        relative: the move is added to the background's motion at the object.
        rotation: U(±degrees), around the object's centre.
        zoom: scale `exp(U(±zoom))`, around the object's centre.
        stretch: U(±), relative difference of the scales along x and y.
        shear: U(±).
        perspective: U(±), relative change of depth across half of the object's longer side.
        thin: probability that a cut-out is squeezed to between an eighth and a third of its width.
        parallax: probability that the camera of a pair moves. Three quarters of the objects then stand still in front
            of the background, each at its own depth; the others move on their own as in any pair.
        travel: range of the camera's move, relative to the depth of the background; log-uniform, in any direction.
        nearness: range of the inverse depth of objects that stand still, relative to the background; log-uniform.
    """

    share: float = 1.0
    count: tuple[int, int] = (1, 6)
    size: Range | None = (0.12, 0.7)
    native_side: int = 520
    large: float = 0.5
    large_to: Range = (0.1, 0.4)
    spin: float = 30.0
    flip: float = 0.5
    near: float = 0.7
    shift: Range = (0.015, 0.45)
    relative: bool = True
    rotation: float = 20.0
    zoom: float = 0.2
    stretch: float = 0.1
    shear: float = 0.1
    perspective: float = 0.1
    thin: float = 0.0
    parallax: float = 0.0
    travel: Range = (0.01, 0.1)
    nearness: Range = (1.2, 6.0)


@dataclass(frozen=True)
class Preset:
    """All settings of synthetic pairs.

    Attributes:
        motions: kinds of background motion, mixed by their weights.
        crop: the part of the photo that the query shows.
        colour: photometric changes; None for none.
        objects: moving objects; None for a static scene.
        leaving: how far outside of the query, in units of r, a target may lie for its flow to be known. Such pixels are
            marked as occluded.
    """

    motions: tuple[Motion, ...]
    crop: Crop = field(default_factory=Crop)
    colour: Colour | None = field(default_factory=Colour)
    objects: Objects | None = None
    leaving: float = 0.0

    def __post_init__(self) -> None:
        if not self.motions or any(m.weight < 0 for m in self.motions) or not sum(m.weight for m in self.motions) > 0:
            raise InputError("a preset needs motions whose weights are not negative and not all zero")
        for part in (*self.motions, self.crop, self.colour, self.objects):
            for name, value in vars(part).items() if part is not None else ():
                if isinstance(value, tuple) and len(value) == 2 and name != "window" and not value[0] <= value[1]:
                    raise InputError(f"{name} must be a range (low, high), got {value}")
        if not 0 < self.crop.share[0] <= self.crop.share[1] <= 1:
            raise InputError(f"the share of a crop must lie in (0, 1], got {self.crop.share}")
        if self.colour is not None and not 0 <= self.colour.blur <= 4:
            raise InputError(f"blur must lie in [0, 4], got {self.colour.blur}")
        if self.objects is not None and self.objects.count[0] < 0:
            raise InputError(f"the count of objects must not be negative, got {self.objects.count}")
        if not self.leaving >= 0:
            raise InputError(f"leaving must not be negative, got {self.leaving}")
