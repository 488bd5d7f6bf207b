"""GOCor in vismatch (formerly image-matching-models): a matcher of its class.

    from vismatch.viz import plot_matches
    from vismatch_matcher import GOCorMatcher

    matcher = GOCorMatcher("cpu")
    result = matcher("a.jpg", "b.jpg")  # homography, inliers, matched keypoints and their confidences
    plot_matches(matcher.load_image("a.jpg"), matcher.load_image("b.jpg"), result, save_path="matches.png")

Needs vismatch 1.3 or later, whose matchers return confidences. Tested with vismatch 1.4.0.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

import gocor

try:
    from vismatch import BaseMatcher
except ImportError:

    class BaseMatcher(nn.Module):  # type: ignore[no-redef]
        """The part of vismatch's base class that a matcher builds on, for use without vismatch."""

        def __init__(self, device: str = "cpu", **kwargs: object) -> None:
            super().__init__()
            self.device = device


Floats = NDArray[np.float32]


class GOCorMatcher(BaseMatcher):
    """Dense matching as sparse matches.

    Args:
        device: where the network runs.
        model: name of a network.
        max_num_keypoints: largest number of matches.
        min_confidence: lowest confidence of a match.
        **kwargs: of vismatch, such as `ransac_reproj_thresh`.
    """

    def __init__(
        self,
        device: str = "cpu",
        model: str = "glunet-gocor",
        max_num_keypoints: int = 2048,
        min_confidence: float = 0.5,
        **kwargs: object,
    ) -> None:
        super().__init__(device, **kwargs)
        self.network = gocor.load_model(model, device=device)
        self.max_points, self.min_confidence = max_num_keypoints, min_confidence

    def _forward(self, img0: Tensor, img1: Tensor) -> tuple[Floats, Floats, None, None, None, None, Floats]:
        """Images `(3, H, W)` in [0, 1] → matched keypoints `(N, 2)` of both images, and their confidences `(N,)`.

        The four `None` stand for unmatched keypoints and descriptors, which a dense network does not have.
        """
        rows = gocor.match(img0, img1, self.network).matches(self.max_points, self.min_confidence)
        return rows[:, :2], rows[:, 2:4], None, None, None, None, rows[:, 4]
