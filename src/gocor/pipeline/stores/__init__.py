"""Where results go: a folder, an HDF5 file, or any store that fsspec can write to."""

from .base import Store, open_store

__all__ = ["Store", "open_store"]
