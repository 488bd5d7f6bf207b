"""The plain feature correlation layers, with the interface of the GOCor modules that replace them."""

from torch import Tensor, nn

from ..ops.correlation import global_correlation, local_correlation
from ..utils.checks import Normalize, check_choice, check_count


class GlobalFeatureCorrelation(nn.Module):
    """Every reference pixel against every query pixel (paper, eq. 1), no parameters.

    Args:
        normalize: `"sum"` or `"mean"` over channels.
    """

    def __init__(self, *, normalize: Normalize = "sum") -> None:
        super().__init__()
        check_choice("normalize", normalize, ("mean", "sum"))
        self.normalize: Normalize = normalize

    def forward(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Tensor:
        """`(B, C, Hr, Wr)`, `(B, C, Hq, Wq)` → `(B, Hq·Wq, Hr, Wr)`.

        `iters` is accepted so that this layer and a GOCor module can stand in for each other; nothing is iterated.
        """
        return global_correlation(reference, query, normalize=self.normalize)

    def extra_repr(self) -> str:
        """Options, for `print`."""
        return f"normalize={self.normalize!r}"


class LocalFeatureCorrelation(nn.Module):
    """Every reference pixel against the query pixels around it (paper, eq. 2), no parameters.

    Args:
        radius: search radius R.
        normalize: `"mean"` or `"sum"` over channels.
    """

    def __init__(self, radius: int = 4, *, normalize: Normalize = "mean") -> None:
        super().__init__()
        check_count("radius", radius)
        check_choice("normalize", normalize, ("mean", "sum"))
        self.radius = radius
        self.normalize: Normalize = normalize

    def forward(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Tensor:
        """`(B, C, H, W)` twice → `(B, (2R+1)², H, W)`.

        `iters` is accepted so that this layer and a GOCor module can stand in for each other; nothing is iterated.
        """
        return local_correlation(reference, query, self.radius, normalize=self.normalize)

    def extra_repr(self) -> str:
        """Options, for `print`."""
        return f"radius={self.radius}, normalize={self.normalize!r}"
