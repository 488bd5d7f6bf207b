"""Feature pyramids: VGG-16, and pyramids that networks learn."""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.select import exporting, needs_gradients, rows_of_strips

VGG_MEAN, VGG_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class VGGPyramid(nn.Module):
    """VGG-16 up to conv4_3, with features taken after each max-pool.

    | level | layers | channels | resolution |
    |---|---|---|---|
    | 0 | conv1_1 | 64 | 1/1 |
    | 1 | conv1_2, pool | 64 | 1/2 |
    | 2 | conv2, pool | 128 | 1/4 |
    | 3 | conv3, pool | 256 | 1/8 |
    | 4 | conv4, pool | 512 | 1/16 |

    Its parameters require no gradient. Inputs are RGB in [0, 1], normalised by `VGG_MEAN` and `VGG_STD`.

    Args:
        width: factor of the channels, below 1 for small test networks.
        ceil_mode: whether the max-pools round sizes up, as in Semantic-GLU-Net.
    """

    def __init__(self, *, width: float = 1.0, ceil_mode: bool = False) -> None:
        super().__init__()
        self.ceil_mode = ceil_mode
        c = [int(width * channels) for channels in (64, 64, 128, 256, 512)]
        self.channels = tuple(c)
        self.level_0 = _convolutions(3, c[0], 1)
        self.level_1 = _convolutions(c[0], c[1], 1)
        self.level_2 = _convolutions(c[1], c[2], 2)
        self.level_3 = _convolutions(c[2], c[3], 3)
        self.level_4 = _convolutions(c[3], c[4], 3)
        self.requires_grad_(False)

    def forward(self, image: Tensor, levels: Sequence[int] = range(5)) -> list[Tensor]:
        """`(B, 3, H, W)` → feature maps of the requested levels, fine to coarse."""
        return [pooled for _, pooled in self._features(image, levels)]

    def before_pooling(self, image: Tensor, levels: Sequence[int]) -> list[Tensor]:
        """Feature maps of the requested levels before their max-pool: level 2 at 1/2 of the resolution, 3 at 1/4, …."""
        return [features for features, _ in self._features(image, levels)]

    def _features(self, image: Tensor, levels: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Features of the requested levels, before and after their max-pool; level 0 has none."""
        if not image.is_cuda and not needs_gradients(image, *self.parameters()):
            image = image.contiguous(memory_format=torch.channels_last)  # a third faster on a CPU
        found: list[tuple[Tensor, Tensor]] = []
        later = [self.level_1, self.level_2, self.level_3, self.level_4][: max(levels)]
        rows = rows_of_strips(image, *self.parameters()) if min(levels) >= 2 else None
        if rows is not None:
            x, start = self._first_pooled(image, rows), 2
        else:
            x, start = _rectified(self.level_0, image), 1
            found += [(x, x)] if 0 in levels else []
        for index, level in enumerate(later[start - 1 :], start):
            features = _rectified(level, x)
            x = F.max_pool2d(features, 2, ceil_mode=self.ceil_mode)
            if index in levels:
                found.append((features, x))
        return found

    def _first_pooled(self, image: Tensor, rows: int) -> Tensor:
        """Features of level 1 after its max-pool, computed for a strip of one image at a time.

        The activations at full resolution take the most memory of all. On a CPU, those of a whole image do not fit into
        the cache, and moving them through memory would take longer than computing them.
        """
        height = image.shape[2]
        # Without ceil_mode, the max-pool drops an odd last row.
        tops = range(0, height if self.ceil_mode else max(1, height // 2 * 2), rows)
        return torch.cat([torch.cat([self._pooled_strip(x, top, rows) for top in tops], 2) for x in image.split(1)])

    def _pooled_strip(self, image: Tensor, top: int, rows: int) -> Tensor:
        """The rows of `_first_pooled` that belong to one strip of one image, which begins at row `top`."""
        bottom = min(top + rows, image.shape[2])
        first, last = max(0, top - 2), min(image.shape[2], bottom + 2)  # two 3×3 convolutions reach two rows further
        x = _rectified(self.level_0, image[:, :, first:last])
        if first > 0:  # the first row saw padding in place of the row before it
            x, first = x[:, :, 1:], first + 1
        if last < image.shape[2]:
            x = x[:, :, :-1]
        x = _rectified(self.level_1, x)[:, :, top - first : bottom - first]
        return F.max_pool2d(x, 2, ceil_mode=self.ceil_mode)


class LearntPyramid(nn.Module):
    """A learnt pyramid: each level continues from the one before.

    Args:
        levels: fine to coarse.
    """

    def __init__(self, levels: Iterable[nn.Module]) -> None:
        super().__init__()
        self.levels = nn.ModuleList(levels)

    def forward(self, image: Tensor) -> list[Tensor]:
        """`(B, 3, H, W)` → the feature map of each level, fine to coarse."""
        features = []
        for level in self.levels:
            image = level(image)
            features.append(image)
        return features


def _convolutions(inputs: int, outputs: int, count: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index in range(count):
        layers += [nn.Conv2d(inputs if index == 0 else outputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def _rectified(layers: nn.Sequential, x: Tensor) -> Tensor:
    """Convolutions, each followed by ReLU. On a GPU cuDNN fuses the two if no gradient is needed."""
    learns = needs_gradients(x, *layers.parameters())
    if not x.is_cuda or learns or exporting() or torch.version.hip is not None or not torch.backends.cudnn.enabled:
        return layers(x)
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            assert layer.bias is not None
            weight, bias = layer.weight.to(x.dtype), layer.bias.to(x.dtype)
            x = torch.cudnn_convolution_relu(x, weight, bias, layer.stride, (1, 1), layer.dilation, layer.groups)
    return x


def normalize_for_vgg(image: Tensor) -> Tensor:
    """RGB `(B, 3, H, W)` in [0, 255] → the pyramid's input."""
    # Python numbers are used because a tensor of constants would be copied to the GPU in every call.
    channels = (image / 255).unbind(1)
    return torch.stack([(x - mean) / std for x, mean, std in zip(channels, VGG_MEAN, VGG_STD, strict=True)], 1)
