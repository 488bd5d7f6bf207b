"""The array types that several packages share, and which values of a flow are known."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
"""An RGB image `(H, W, 3)`."""

FlowField = NDArray[np.float32]
"""A flow `(H, W, 2)`, x first, in pixels."""

Flow = NDArray[np.float32]
"""A flow `(2, H, W)`, x first, in pixels."""

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Larger flow is unknown. A Python float would be cast to float16, and become infinite, in comparisons with float16.
MAX_FLOW = np.float64(1e9)


def known_flow(flow: NDArray[Any]) -> Mask:
    """Where a flow `(2, H, W)` is known: finite, and at most 1e9 pixels in x and in y. `(H, W)`."""
    return np.asarray((np.abs(flow) <= MAX_FLOW).all(0))
