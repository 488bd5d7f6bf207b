"""What synthetic pairs look like: the ranges that their parameters are drawn from.

Lengths are shares of r, half of the image's shorter side, so that a preset serves every size: 0.1 is 13 px at 256×256.
`U(±a)` is uniform in [-a, a]. Derive a preset of your own with `dataclasses.replace`.
"""

from dataclasses import dataclass, field

from ...utils.errors import InputError

Range = tuple[float, float]


@dataclass(frozen=True)
class Motion:
    """One kind of background motion; a preset mixes several.

    Coordinates n have their origin in the image's centre, r as unit. The reference pixel n shows what the query shows
    at `M(n + D(n))`: D bends (thin-plate splines and cubic B-splines), `M = P·A` is projective (P) after affine (A).

    Attributes:
        weight: how often it is drawn, relative to the other motions of the preset.
        rotation: U(±degrees).
        zoom: scale `exp(U(±zoom))`; above 1 the reference shows more than the query.
        stretch: scales along two orthogonal directions, each uniform in the range.
        stretch_angle: U(±degrees), those directions' turn against the axes.
        shear: U(±), x moves by this share of y.
        shift: U(±), of x and of y, each.
        horizontal: only x moves, as between the rectified images of a stereo camera.
        corners: U(±), of both coordinates of the image's four corners, each: P maps the corners to the moved ones.
            Where that would turn the image inside out, or nearly so, the moves are halved until it does not.
        corner_step: moves of corners are rounded down to multiples of it; 0 leaves them.
        inverse_corners: P maps the moved corners to the corners instead.
        plate: standard deviation of the moves of a 3×3 grid of control points, a thin-plate spline's.
        bend: standard deviation of the 7×7 coefficients of a cubic B-spline; the bending has about half of it.
        bend_share: share of the pairs that are bent.
        strength: one factor on all of the above moves, uniform in the range.
        window: shares of the photo's width and height, about its centre, that the query shows, whatever its shape;
            None shows an undistorted part that `Crop` describes.
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
    """Which part of the photo the query shows, as far as a motion has no `window`.

    Attributes:
        share: side of the part, of the largest part that fits into the photo; uniform in the range.
        tilt: U(±degrees) that the part is turned by.
        flip: probability of mirroring the photo.
    """

    share: Range = (0.5, 1.0)
    tilt: float = 10.0
    flip: float = 0.5


@dataclass(frozen=True)
class Colour:
    """Photometric changes of an image, drawn for reference and query independently.

    Attributes:
        brightness: U(±), of the full range 255.
        contrast: factor `exp(U(±))` about mid-grey.
        saturation: factor `max(0, 1 + U(±))`.
        channels: factor `exp(U(±))` of R, G and B each.
        gamma: exponent `exp(U(±))`.
        grey: probability that both images lose their colours.
        common: share of the changes of brightness, contrast, saturation, channels and gamma that the two images have
            in common: 0 makes them independent, 1 the same.
        exposure: factor `exp(-U(0, this))` of all channels: darker, since brighter would soon be white.
        light: another light: a factor that varies smoothly over the image, its logarithm by this standard deviation.
        light_share: probability that an image has another light.
        blur: standard deviation of a Gaussian in pixels, uniform up to this; at most 4.
        blur_share: probability of blurring an image.
        noise: standard deviation of Gaussian noise, of the full range, uniform up to this.
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
    """Cut-outs that move on their own in front of the photo; of two, the same one is nearer in both images.

    Attributes:
        share: probability that a pair has objects.
        count: how many at least and at most; each number equally often.
        size: longer side, as a share of the image's shorter side, log-uniform; None keeps the size that the cut-out had
            in its own photo, when images had `native_side` pixels.
        native_side: see `size`.
        large: cut-outs of native size that would cover more than this share of the image are shrunk,
        large_to: to a share uniform in this range.
        spin: U(±degrees), how a cut-out is turned in the reference.
        flip: probability of mirroring a cut-out.
        near: probability that it moves by `shift`; otherwise it jumps to anywhere in the query.
        shift: length of the move, in r, log-uniform and in any direction; from 0, U(±) of x and of y, each.
        relative: it moves on top of the background's motion where it stands; otherwise from where it stands.
        rotation: U(±degrees), about its own centre.
        zoom: scale `exp(U(±zoom))`, about its own centre.
        stretch: U(±), relative difference of its scales along x and y.
        shear: U(±).
        perspective: U(±), relative change of depth across half of its longer side.
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


@dataclass(frozen=True)
class Preset:
    """All that describes a kind of pairs.

    Attributes:
        motions: kinds of background motion, mixed by their weights.
        crop: part of the photo that the query shows.
        colour: photometric changes; None for none.
        objects: moving objects; None for a static scene.
    """

    motions: tuple[Motion, ...]
    crop: Crop = field(default_factory=Crop)
    colour: Colour | None = field(default_factory=Colour)
    objects: Objects | None = None

    def __post_init__(self) -> None:
        if not self.motions or any(m.weight < 0 for m in self.motions) or not sum(m.weight for m in self.motions) > 0:
            raise InputError("a preset needs motions, with weights that are not negative and not all zero")
        for part in (*self.motions, self.crop, self.colour, self.objects):
            for name, value in vars(part).items() if part is not None else ():
                if isinstance(value, tuple) and len(value) == 2 and name != "window" and not value[0] <= value[1]:
                    raise InputError(f"{name} must be a range (low, high), got {value}")
        if not 0 < self.crop.share[0] <= self.crop.share[1] <= 1:
            raise InputError(f"share of a crop must lie in (0, 1], got {self.crop.share}")
        if self.colour is not None and not 0 <= self.colour.blur <= 4:
            raise InputError(f"blur must lie in [0, 4], got {self.colour.blur}")
        if self.objects is not None and self.objects.count[0] < 0:
            raise InputError(f"count of objects must not be negative, got {self.objects.count}")
