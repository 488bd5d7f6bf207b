"""The version, alone in its file so that the build back end can read it."""

__version__ = "1.0.0"
