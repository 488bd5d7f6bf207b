"""Two photographs in, dense matches out."""

from .api import MatchResult, match
from .files import save_result

__all__ = ["MatchResult", "match", "save_result"]
