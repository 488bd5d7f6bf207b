"""Export of networks to files that other programs run: ONNX, and torch's own `.pt2`."""

from .files import Exported, export_model

__all__ = ["Exported", "export_model"]
