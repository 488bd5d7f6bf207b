"""Images and flow fields in files."""

from .flow_files import read_flow, write_flow
from .images import read_image, to_rgb, write_image

__all__ = [
    "read_flow",
    "read_image",
    "to_rgb",
    "write_flow",
    "write_image",
]
