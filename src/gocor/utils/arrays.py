"""Types of the NumPy arrays that the package passes around."""

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]  # RGB `(H, W, 3)`
Mask = NDArray[np.bool_]  # `(H, W)`
Points = NDArray[np.float64]  # coordinates and matrices
Flow = NDArray[np.float32]
