"""GOCor in kornia: a module that is called like `kornia.feature.LocalFeatureMatcher` and `LoFTR`.

    matcher = GOCorMatcher("glunet-gocor")
    found = matcher({"image0": image0, "image1": image1})  # batches (B, C, H, W) in [0, 1], C = 1 or 3
    found["keypoints0"], found["keypoints1"]  # (N, 2) both, x then y in pixels
    found["confidence"], found["batch_indexes"]  # (N,) both

It does not import kornia. The matches go on to `kornia.geometry`, for example to
`RANSAC("homography")(found["keypoints0"], found["keypoints1"])`. Tested with kornia 0.9.0.
"""

import torch
from torch import Tensor, nn

import gocor


class GOCorMatcher(nn.Module):
    """Dense matching as sparse matches.

    Args:
        model: name of a network, or a network.
        max_points: largest number of matches of a pair.
        min_confidence: lowest confidence of a match.
        **options: of `gocor.match`, such as `max_size`.
    """

    def __init__(
        self,
        model: str | nn.Module = "glunet-gocor",
        *,
        max_points: int = 5000,
        min_confidence: float = 0.5,
        **options: object,
    ) -> None:
        super().__init__()
        self.network = gocor.load_model(model, device="cpu") if isinstance(model, str) else model
        self.max_points, self.min_confidence, self.options = max_points, min_confidence, options

    @torch.no_grad()
    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        """Match `image0` and `image1`, batches of one length whose sizes may differ."""
        first, second = data["image0"], data["image1"]
        if len(first) != len(second):
            raise ValueError(f"image0 and image1 must have one batch size, got {len(first)} and {len(second)}")
        results = gocor.match(list(first), list(second), self.network, **self.options)
        rows = [torch.from_numpy(result.matches(self.max_points, self.min_confidence)) for result in results]
        points = torch.cat(rows).to(first.device, torch.float32)
        counts = torch.tensor([len(row) for row in rows], device=first.device)
        return {
            "keypoints0": points[:, :2],
            "keypoints1": points[:, 2:4],
            "confidence": points[:, 4],
            "batch_indexes": torch.arange(len(rows), device=first.device).repeat_interleave(counts),
        }
