"""Presets by name."""

from ...utils.errors import InputError
from .settings import Colour, Crop, Motion, Objects, Preset

# The motions of the published training data. Corners of a 240×240 square move by integers from -80 to 79. A photo is
# resized to a canvas of 1386×1040 pixels (1664×1248 for homographies), and both images show a part of its centre.
PUBLISHED_MOTIONS = (
    Motion(
        weight=0.25,
        rotation=15,
        stretch=(0.75, 1.25),
        stretch_angle=30,
        shift=0.25,
        window=(0.45, 0.45),
    ),
    Motion(weight=0.25, plate=0.2, window=(0.45, 0.45)),
    Motion(weight=0.5, corners=80 / 120, corner_step=1 / 120, inverse_corners=True, window=(520 / 1664, 520 / 1248)),
)

# Wide baselines, mixed with small motions as in video and horizontal motions as in stereo.
WIDE_MOTIONS = (
    Motion(weight=0.18, corners=0.62, strength=(0.1, 1), bend=0.05, bend_share=0.33),
    Motion(
        weight=0.08, rotation=25, zoom=0.4, stretch=(0.85, 1.15), stretch_angle=90, shear=0.15, shift=0.3,
        bend=0.05, bend_share=0.33,
    ),
    # Large rotations and changes of scale.
    Motion(
        weight=0.12, rotation=100, zoom=1.0, stretch=(0.85, 1.15), stretch_angle=90, shear=0.1, shift=0.3, corners=0.12,
        strength=(0.2, 1), bend=0.03, bend_share=0.33,
    ),
    # Views from the side.
    Motion(
        weight=0.08, rotation=45, zoom=0.25, stretch=(0.3, 1.3), stretch_angle=90, shift=0.3, corners=0.25,
        strength=(0.3, 1),
    ),
    # Small overlap, as in the images of a panorama.
    Motion(weight=0.12, rotation=25, zoom=0.25, shear=0.1, shift=1.7, corners=0.25, strength=(0.3, 1)),
    Motion(weight=0.10, plate=0.2, strength=(0.1, 1), bend=0.05, bend_share=0.33),
    Motion(weight=0.18, rotation=4, zoom=0.06, shear=0.04, shift=0.12, corners=0.06, strength=(0.05, 1), bend=0.03),
    Motion(
        weight=0.14, zoom=0.12, shear=0.2, shift=0.35, horizontal=True, strength=(0.05, 1), bend=0.08, bend_share=0.7,
    ),
)  # fmt: skip

# Motions between neighbouring frames of a video.
SMALL_MOTIONS = (
    Motion(weight=0.45, rotation=4, zoom=0.06, shear=0.04, shift=0.15, corners=0.06, strength=(0.02, 1), bend=0.03),
    Motion(weight=0.30, rotation=10, zoom=0.15, shear=0.08, shift=0.3, corners=0.1, strength=(0.1, 1), bend=0.04),
    Motion(weight=0.15, zoom=0.08, shear=0.12, shift=0.3, horizontal=True, strength=(0.05, 1), bend=0.06),
    Motion(weight=0.10, shift=0.3, strength=(0.0, 1)),
)

# A camera that moves forwards, sideways or along a curve.
CAMERA_MOTIONS = (
    Motion(weight=0.40, rotation=5, zoom=0.2, shear=0.04, shift=0.2, corners=0.12, strength=(0.05, 1), bend=0.04),
    Motion(weight=0.25, rotation=15, zoom=0.3, shear=0.1, shift=0.5, corners=0.2, strength=(0.1, 1), bend=0.05),
    Motion(weight=0.20, zoom=0.1, shear=0.15, shift=0.4, horizontal=True, strength=(0.05, 1), bend=0.08),
    Motion(weight=0.15, shift=0.4, strength=(0.0, 1)),
)

# What two frames of a video have in common.
LARGE_CROP = Crop(share=(0.6, 1.0), tilt=5)
MILD_COLOUR = Colour(
    brightness=0.12, contrast=0.25, saturation=0.3, channels=0.08, gamma=0.25, grey=0.02, common=0.85,
    exposure=0, light=0, blur=0.8, blur_share=0.15, noise=0.015,
)  # fmt: skip

PRESETS: dict[str, Preset] = {
    "static": Preset(WIDE_MOTIONS),
    "dynamic": Preset(WIDE_MOTIONS, objects=Objects()),
    "flow": Preset(
        SMALL_MOTIONS,
        crop=LARGE_CROP,
        colour=MILD_COLOUR,
        objects=Objects(
            count=(3, 10), size=(0.08, 0.5), spin=180, near=0.97, shift=(0.005, 0.4), rotation=12, zoom=0.12,
            stretch=0.06, shear=0.06, perspective=0.08,
        ),
        leaving=0.5,
    ),
    "parallax": Preset(
        CAMERA_MOTIONS,
        crop=Crop(share=(0.5, 1.0), tilt=5),
        colour=Colour(
            brightness=0.15, contrast=0.3, saturation=0.3, channels=0.1, gamma=0.3, grey=0.03, common=0.7,
            exposure=0.2, light=0.15, light_share=0.3, blur=1.5, blur_share=0.2, noise=0.02,
        ),
        objects=Objects(
            count=(4, 12), size=(0.05, 0.6), spin=180, near=0.95, shift=(0.01, 0.8), rotation=15, zoom=0.15,
            stretch=0.08, shear=0.08, perspective=0.1, thin=0.25, parallax=0.7,
        ),
        leaving=0.5,
    ),
    "fast": Preset(
        SMALL_MOTIONS,
        crop=LARGE_CROP,
        colour=MILD_COLOUR,
        objects=Objects(
            count=(3, 9), size=(0.08, 0.6), spin=180, near=1, shift=(0.1, 1.0), rotation=15, zoom=0.15, stretch=0.06,
            shear=0.06, perspective=0.08, thin=0.35,
        ),
        leaving=0.5,
    ),
    "static-published": Preset(PUBLISHED_MOTIONS, colour=None),
    "dynamic-published": Preset(
        PUBLISHED_MOTIONS,
        colour=None,
        objects=Objects(
            share=0.8, count=(1, 1), size=None, spin=0, flip=0, near=0.5, shift=(0, 8 / 260), relative=False,
            rotation=30, zoom=0.3, stretch=0, shear=0, perspective=0,
        ),
    ),
}  # fmt: skip


def get_preset(preset: str | Preset) -> Preset:
    """Look up a preset by its name; a `Preset` is returned unchanged."""
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise InputError(f"no preset is named {preset!r}; there are {', '.join(PRESETS)}")
    return PRESETS[preset]
