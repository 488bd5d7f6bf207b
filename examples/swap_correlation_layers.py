"""Put GOCor, or a correlation layer of your own, into any network of the package.

A network takes its correlation layers as arguments, so this is one constructor call. A layer only needs
`forward(reference, query, iters=None)`, which returns a volume of the same shape as the plain layer's.

    python examples/swap_correlation_layers.py

builds three PWC-Nets and a BaseNet, prints their numbers of parameters, and runs them on a pair of random images.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gocor import GlobalGOCor, LocalFeatureCorrelation, LocalGOCor, local_correlation
from gocor.models import BaseNet, MatchingNetwork, PWCNet


class CosineCorrelation(nn.Module):
    """A custom layer: local correlation of L2-normalised features with a learnt temperature."""

    def __init__(self, radius: int = 4) -> None:
        super().__init__()
        self.radius = radius
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def forward(self, reference: Tensor, query: Tensor, iters: int | None = None) -> Tensor:
        """`(B, C, H, W)` twice → `(B, (2R+1)², H, W)`; `iters` has no effect."""
        reference, query = F.normalize(reference, dim=1), F.normalize(query, dim=1)
        return self.temperature * local_correlation(reference, query, self.radius, normalize="sum")


def build_networks() -> dict[str, MatchingNetwork]:
    """The same networks with different layers."""
    return {
        "PWC-Net, plain": PWCNet([LocalFeatureCorrelation(4) for _ in range(5)]),
        "PWC-Net, GOCor": PWCNet([LocalGOCor(4) for _ in range(5)]),
        "PWC-Net, own layer": PWCNet([CosineCorrelation(4) for _ in range(5)]),
        # Both local levels of a BaseNet share one layer. GOCor's volume is not L2-normalised, hence the activation.
        "BaseNet, GOCor": BaseNet(GlobalGOCor(512, eta=0.1), LocalGOCor(4, iters=5), activation="leaky-relu"),
    }


def main() -> None:
    """Build the networks, count their parameters, and run them."""
    torch.manual_seed(0)
    reference, query = 255 * torch.rand(2, 1, 3, 96, 128)
    for name, network in build_networks().items():
        layers = [p.numel() for key, p in network.named_parameters() if "correlation." in key]
        with torch.inference_mode():
            flow = network.eval()(reference, query)
        print(f"{name:20} {sum(p.numel() for p in network.parameters()):>10} parameters, ", end="")
        print(f"{sum(layers):>5} of them in correlation layers; flow {tuple(flow.shape)}")


if __name__ == "__main__":
    main()
