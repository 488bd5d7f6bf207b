"""Plain local and global correlation, and their adjoints."""

from .global_ import (
    global_correlation,
    global_correlation_adjoint_query,
    global_correlation_adjoint_reference,
    transpose_global_volume,
)
from .local import (
    local_correlation,
    local_correlation_adjoint_query,
    local_correlation_adjoint_reference,
    transpose_local_volume,
)
from .lookups import lookup, pool_pyramid

__all__ = [
    "global_correlation",
    "global_correlation_adjoint_query",
    "global_correlation_adjoint_reference",
    "local_correlation",
    "local_correlation_adjoint_query",
    "local_correlation_adjoint_reference",
    "lookup",
    "pool_pyramid",
    "transpose_global_volume",
    "transpose_local_volume",
]
