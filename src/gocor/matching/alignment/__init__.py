"""Alignment of images of a wide baseline.

A network's coarse levels recover large motion whose residual is beyond the fine levels' search range. So a homography
is fitted to the coarse matches, the query is warped by it, and the coarse levels match again; each round leaves less
motion. If they find little, shifted and rotated queries are tried too (`search`). The network then matches the
reference with the warped query at full resolution, which also recovers motion that no homography explains (`wide`).
Parts of the scene that it is unsure of are aligned and matched again (`looks`).
"""

from .settings import DEFAULT_ALIGNMENT, AlignmentSettings
from .wide import match_wide_baseline

__all__ = ["DEFAULT_ALIGNMENT", "AlignmentSettings", "match_wide_baseline"]
