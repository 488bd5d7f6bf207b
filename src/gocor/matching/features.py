"""Features of images, computed once for all pairs of an image."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..models.network import MatchingNetwork
from ..models.outputs import ImageFeatures, Prediction
from ..models.resizing import resize_image

Tensors = tuple[Tensor, ...]
CPU_BYTES = 512 * 2**20  # bytes of features that are kept in main memory
GPU_SHARE = 1 / 8  # share of a GPU's memory that features may take


class FeatureCache:
    """A least-recently-used cache of features, by image and by kind.

    Images are compared by identity, not by content. The cache holds the images too, so that no other object gets their
    identity.

    Args:
        limit: largest number of bytes of features and of their images; `None` for no limit.

    Attributes:
        bytes: number of bytes that the cache holds.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit, self.bytes = limit, 0
        self._kept: OrderedDict[tuple[int, Hashable], tuple[Any, Tensors]] = OrderedDict()  # the last used is last

    def get(self, image: Any, kind: Hashable) -> Tensors | None:
        """Features of an image; `None` if they are not there."""
        key = id(image), kind
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][1]

    def put(self, image: Any, kind: Hashable, tensors: Tensors) -> None:
        """Keep features. The least recently used ones are dropped to make room."""
        self._remove((id(image), kind))
        self._kept[id(image), kind] = image, tensors
        self.bytes += _size(image, tensors)
        while self._limit is not None and self.bytes > self._limit:
            self._remove(next(iter(self._kept)))

    def drop(self, image: Any) -> None:
        """Forget the features of an image."""
        for key in [key for key in self._kept if key[0] == id(image)]:
            self._remove(key)

    def clear(self) -> None:
        """Forget all features."""
        self._kept.clear()
        self.bytes = 0

    def _remove(self, key: tuple[int, Hashable]) -> None:
        if key in self._kept:
            self.bytes -= _size(*self._kept.pop(key))


def default_limit(device: torch.device) -> int:
    """Bytes of features that are kept by default: 512 MiB, or an eighth of a GPU's memory."""
    return int(GPU_SHARE * torch.cuda.mem_get_info(device)[1]) if device.type == "cuda" else CPU_BYTES


@dataclass(frozen=True)
class Images:
    """A batch of images, and where their features are kept.

    Attributes:
        pixels: RGB `(B, 3, H, W)` in [0, 255].
        identities: for each image, the object that identifies it in the cache.
        cache: keeps features of these and other images; `None` to keep none.
    """

    pixels: Tensor
    identities: Sequence[Any]
    cache: FeatureCache | None = None

    @staticmethod
    def of(images: "Tensor | Images", cache: FeatureCache | None = None) -> "Images":
        """A batch of images. A tensor gets new identities; a batch without a cache gets this one."""
        if isinstance(images, Images):
            return images if images.cache is not None else replace(images, cache=cache)
        return Images(images, [object() for _ in images], cache)

    def __len__(self) -> int:
        return len(self.identities)

    def __getitem__(self, chosen: Sequence[int]) -> "Images":
        return Images(self.pixels[list(chosen)], [self.identities[i] for i in chosen], self.cache)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[2], self.pixels.shape[3]


def encode(
    batches: Sequence[Images],
    kind: Hashable,
    prepare: Callable[[Tensor], Tensor],
    compute: Callable[[Tensor], Tensors],
) -> list[Tensors]:
    """Features of batches of images. Features that no cache holds are computed in one call, each image once.

    Args:
        batches: batches of images of any sizes.
        kind: key of the features in the cache; it identifies what `prepare` and `compute` do.
        prepare: one image `(1, 3, H, W)` → the input of `compute`, of a size that is the same for all.
        compute: prepared images `(N, 3, h, w)` → features `(N, …)`.

    Returns:
        The features of each batch.
    """
    found: dict[int, Tensors] = {}
    missing: dict[int, tuple[Any, Tensor, FeatureCache | None]] = {}
    for images in batches:
        for i, image in enumerate(images.identities):
            known = None if images.cache is None else images.cache.get(image, kind)
            if known is not None:
                found[id(image)] = known
            elif id(image) not in missing:
                missing[id(image)] = image, images.pixels[i : i + 1], images.cache
    if missing:
        computed = compute(torch.cat([prepare(pixels) for _, pixels, _ in missing.values()]))
        for i, (image, _, cache) in enumerate(missing.values()):
            # Without the copy, a slice would keep the features of all images in memory.
            tensors = tuple(x if len(missing) == 1 else x[i : i + 1].clone() for x in computed)
            found[id(image)] = tensors
            if cache is not None:
                cache.put(image, kind, tensors)
    return [_joined([found[id(image)] for image in images.identities]) for images in batches]


def predict(
    network: MatchingNetwork, reference: Images, query: Images, *, confidence: bool, **options: int | None
) -> Prediction:
    """Flow between two batches of images, from kept features if there is a cache and the network can use them.

    Args:
        network: a network in evaluation mode.
        reference: the references.
        query: the queries.
        confidence: predict the confidence too; only for networks that learn it.
        **options: options of `MatchingNetwork.forward`.
    """
    kept = reference.cache is not None and query.cache is not None
    if not kept or not network.reuses_features or network.graphs is not None:
        if confidence:
            return network.predict(reference.pixels, query.pixels, **options)
        return Prediction(network(reference.pixels, query.pixels, **options), None, None)
    size = size_of_match(network, reference, options)
    options = {name: value for name, value in options.items() if name not in ("min_size", "max_size")}
    found = match_at(network, reference, query, size, **options)
    return found if confidence else Prediction(found.flow, None, None)


def size_of_match(network: MatchingNetwork, reference: Images, options: Mapping[str, int | None]) -> tuple[int, int]:
    """The working size of references, with options of `MatchingNetwork.forward`."""
    least, most = options.get("min_size"), options.get("max_size")
    return network.working_size(*reference.size, min_size=network.min_size if least is None else least, max_size=most)


def match_at(
    network: MatchingNetwork, reference: Images, query: Images, size: tuple[int, int], **options: Any
) -> Prediction:
    """What a network that reuses features finds at a given working size.

    Args:
        network: a network in evaluation mode.
        reference: the references.
        query: the queries.
        size: a size that the network can process.
        **options: options of `MatchingNetwork.match_features`.
    """
    tensors = encode(
        (reference, query),
        size,
        lambda image: resize_image(image, size, published=network.published),
        lambda images: network.features(images, min_size=0).tensors,
    )
    first, second = (
        ImageFeatures(found, images.size, size) for found, images in zip(tensors, (reference, query), strict=True)
    )
    return network.match_features(first, second, **options)


def _joined(samples: Sequence[Tensors]) -> Tensors:
    """Features of single images as a batch."""
    return samples[0] if len(samples) == 1 else tuple(torch.cat(levels) for levels in zip(*samples, strict=True))


def _size(image: Any, tensors: Tensors) -> int:
    return int(getattr(image, "nbytes", 0)) + sum(x.nbytes for x in tensors)
