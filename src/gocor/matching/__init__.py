"""Match two images: pre-processing, alignment, flow, confidence, occlusion, and files."""

from .api import match
from .files import save_result
from .options import MatchOptions
from .result import MatchResult
from .sequence import match_sequence

__all__ = ["MatchOptions", "MatchResult", "match", "match_sequence", "save_result"]
