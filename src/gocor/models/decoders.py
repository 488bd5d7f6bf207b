"""Decoders that turn correspondence volumes into mappings and flows."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (128, 128, 96, 64, 32)


class MappingDecoder(nn.Module):
    """Volume → normalised mapping in [−1, 1]² (DGC-Net's decoder): five 3×3 convolutions with ReLU, then one to x, y.

    Args:
        inputs: number of input channels.
        width: factor of the channels, below 1 for small test networks.
    """

    def __init__(self, inputs: int, *, width: float = 1.0) -> None:
        super().__init__()
        sizes = [inputs, *(int(width * w) for w in WIDTHS)]
        self.convs = nn.ModuleList(
            conv_block(before, after, norm=True, activation=nn.ReLU()) for before, after in pairwise(sizes)
        )
        self.predict = nn.Conv2d(sizes[-1], 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, inputs, H, W)` → `(B, 2, H, W)`."""
        for conv in self.convs:
            x = conv(x)
        return without_autocast(self.predict, x)


class FlowDecoder(nn.Module):
    """Volume → flow (PWC-Net's decoder): densely connected convolutions, outputs concatenated in front of inputs.

    Args:
        inputs: number of input channels.
        norm: batch normalisation after each convolution, as in GLU-Net and BaseNet.
        width: factor of the channels, below 1 for small test networks.
    """

    def __init__(self, inputs: int, *, norm: bool, width: float = 1.0) -> None:
        super().__init__()
        self.convs = nn.ModuleList()
        for w in WIDTHS:
            self.convs.append(conv_block(inputs, int(width * w), norm=norm))
            inputs += int(width * w)
        self.predict = nn.Conv2d(inputs, 2, 3, padding=1)
        self.outputs = inputs

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, inputs, H, W)` → all features `(B, outputs, H, W)` and the flow `(B, 2, H, W)`.

        16-bit features on a GPU have zero channels appended, see `pad_for_tensor_cores`, which `ContextNetwork` and
        `Upsampler` accept.
        """
        x = pad_for_tensor_cores(x, self.predict)
        for block in self.convs:
            x = torch.cat([convolve(block, x), x], 1)
        return x, without_autocast(self.predict, x)


class ContextNetwork(nn.Module):
    """Dilated convolutions that predict a correction of the flow from a decoder's features."""

    def __init__(self, inputs: int, *, norm: bool, width: float = 1.0) -> None:
        super().__init__()
        self.convs = nn.ModuleList()
        for w, dilation in zip((128, 128, 128, 96, 64, 32), (1, 2, 4, 8, 16, 1), strict=True):
            self.convs.append(conv_block(inputs, int(width * w), norm=norm, dilation=dilation))
            inputs = int(width * w)
        self.predict = nn.Conv2d(inputs, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, inputs, H, W)` → `(B, 2, H, W)`."""
        for block in self.convs:
            x = convolve(block, x)
        return without_autocast(self.predict, x)


def conv_block(
    inputs: int, outputs: int, *, norm: bool, stride: int = 1, dilation: int = 1, activation: nn.Module | None = None
) -> nn.Sequential:
    """3×3 convolution, batch normalisation if `norm`, and LeakyReLU(0.1) or another activation."""
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation)]
    if norm:
        layers.append(nn.BatchNorm2d(outputs))
    return nn.Sequential(*layers, activation if activation is not None else nn.LeakyReLU(0.1))


def without_autocast(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Apply a layer in the precision of its weights, because bfloat16 cannot represent large flows precisely."""
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(layer.weight.dtype)
        return _convolve_padded(layer, x)


def pad_for_tensor_cores(x: Tensor, layer: nn.Conv2d) -> Tensor:
    """Convert the input of densely connected layers for tensor cores, inside autocast on a GPU.

    The dtype is that of autocast, the memory format that of the layer's weights, and zero channels are appended up to
    a multiple of 8.
    """
    if not x.is_cuda or not torch.is_autocast_enabled(x.device.type):
        return x
    x = F.pad(x.to(torch.get_autocast_dtype(x.device.type)), (0, 0, 0, 0, 0, -x.shape[1] % 8))
    channels_last = layer.weight.is_contiguous(memory_format=torch.channels_last)
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x


def convolve(block: nn.Module, x: Tensor) -> Tensor:
    """Apply a `conv_block` to features that may have zero channels appended."""
    assert isinstance(block, nn.Sequential) and isinstance(block[0], nn.Conv2d)  # noqa: PT018
    return block(x) if x.shape[1] == block[0].in_channels else block[1:](_convolve_padded(block[0], x))


def _convolve_padded(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """A convolution whose weights get zeros for channels that were appended to its input."""
    extra = x.shape[1] - layer.in_channels
    weight = F.pad(layer.weight, (0, 0, 0, 0, 0, extra)) if extra else layer.weight
    return F.conv2d(x, weight, layer.bias, layer.stride, layer.padding, layer.dilation)


class Upsampler(nn.ConvTranspose2d):
    """Learnt upsampling by two, to two channels."""

    def __init__(self, inputs: int) -> None:
        super().__init__(inputs, 2, 4, stride=2, padding=1)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """`(B, inputs, H, W)` → `(B, 2, 2H, 2W)`."""
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x[:, : self.in_channels].to(self.weight.dtype), output_size)


def initialize(module: nn.Module) -> None:
    """Initialise a network's layers, except the frozen pyramid.

    Convolutions get Kaiming-normal weights and zero bias. Upsamplers of flow start as bilinear interpolation, which
    trains significantly better and faster than random values.
    """
    for layer in module.modules():
        if isinstance(layer, nn.ConvTranspose2d) and layer.in_channels == 2:
            ramp = torch.tensor([0.25, 0.75, 0.75, 0.25])
            with torch.no_grad():
                layer.weight.zero_()
                layer.weight[range(2), range(2)] = ramp[:, None] * ramp[None]
        elif isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)) and layer.weight.requires_grad:
            nn.init.kaiming_normal_(layer.weight, mode="fan_in")
        else:
            continue
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
