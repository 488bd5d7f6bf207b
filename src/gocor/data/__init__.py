"""Images and flow fields in files."""

from .atomic import atomic_path, write_bytes_atomically
from .flow_files import read_flow, write_flow
from .images import read_image, to_rgb, write_image

__all__ = [
    "atomic_path",
    "read_flow",
    "read_image",
    "to_rgb",
    "write_bytes_atomically",
    "write_flow",
    "write_image",
]
