"""Image, flow and CSV files."""

from .csv_files import iterate_csv, read_csv
from .flow_files import read_flow, write_flow
from .images import encode_image, read_image, to_rgb, write_image

__all__ = [
    "encode_image",
    "iterate_csv",
    "read_csv",
    "read_flow",
    "read_image",
    "to_rgb",
    "write_flow",
    "write_image",
]
