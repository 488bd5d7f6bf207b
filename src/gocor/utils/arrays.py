"""Names of the array types that several packages share."""

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
"""An RGB image `(H, W, 3)`."""

FlowField = NDArray[np.float32]
"""A flow `(H, W, 2)`, x first, in pixels."""

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
