"""Pictures of flow, matches and confidence."""

from .colors import color_legend, flow_scale, flow_to_color
from .drawing import draw_confidence, draw_flow, draw_matches, draw_overlay

__all__ = [
    "color_legend",
    "draw_confidence",
    "draw_flow",
    "draw_matches",
    "draw_overlay",
    "flow_scale",
    "flow_to_color",
]
