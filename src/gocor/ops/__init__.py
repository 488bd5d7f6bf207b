"""Pure functions without parameters: correlations and their adjoints, warping and the algebra of flows."""

from .correlation.global_ import (
    global_correlation,
    global_correlation_adjoint_query,
    global_correlation_adjoint_reference,
    transpose_global_volume,
)
from .correlation.local import (
    local_correlation,
    local_correlation_adjoint_query,
    local_correlation_adjoint_reference,
    transpose_local_volume,
)
from .correlation.lookups import lookup, pool_pyramid
from .warp import (
    compose_flows,
    flow_to_mapping,
    forward_backward_error,
    inside_mask,
    invert_flow,
    mapping_to_flow,
    occlusion_mask,
    pixel_grid,
    resize_flow,
    warp,
)

__all__ = [
    "compose_flows",
    "flow_to_mapping",
    "forward_backward_error",
    "global_correlation",
    "global_correlation_adjoint_query",
    "global_correlation_adjoint_reference",
    "inside_mask",
    "invert_flow",
    "local_correlation",
    "local_correlation_adjoint_query",
    "local_correlation_adjoint_reference",
    "lookup",
    "mapping_to_flow",
    "occlusion_mask",
    "pixel_grid",
    "pool_pyramid",
    "resize_flow",
    "transpose_global_volume",
    "transpose_local_volume",
    "warp",
]
