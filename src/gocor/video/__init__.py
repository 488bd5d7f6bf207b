"""Video: flow, tracks and steady frames of a clip."""

from .options import VideoOptions
from .run import Made, check_output, make_video, open_source
from .stabilize import Stabilization

__all__ = ["Made", "Stabilization", "VideoOptions", "check_output", "make_video", "open_source"]
