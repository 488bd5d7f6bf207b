"""What every network has in common: raw images in, full-resolution flow out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..modules.gocor import GOCor
from ..ops.warp import resize_flow, scale_flow
from ..utils.checks import check_count, check_features, check_pair
from .graphs import GraphCache
from .published_names import Rule

LARGEST_SCALE = 3  # that `min_size` enlarges an image by
PUBLISHED_LOSS_WEIGHTS = (0.32, 0.08, 0.02, 0.01, 0.005)  # the paper's, coarse to fine, of sums over pixels


class Outputs(NamedTuple):
    """Results of a network in training.

    Attributes:
        flows: of its levels, coarse to fine, see `MatchingNetwork.levels`.
        confidence: logits of the probability that the last flow is right, at its size, `(B, 1, h, w)`; or `None`.
    """

    flows: list[Tensor]
    confidence: Tensor | None


class MatchingNetwork(nn.Module, ABC):
    """Base class of the networks: raw images in, full-resolution flow out.

    A network states every fact about itself that other parts of the package need, so a new one needs no edit elsewhere
    (see `docs/extending.md`). It must define `working_size`, `prepare`, `levels` and `level_units`.

    Attributes:
        published: pre-process as published code does, faults included, because a published checkpoint was trained that
            way: images are resized by area averages and truncated to integers. Otherwise they are resized by
            anti-aliased bilinear interpolation.
        name: the registered name, empty for a network that was put together by hand.
        has_global_layer: whether the network has a global correlation layer, so that `iters_global` has a meaning.
        min_size: longer side that smaller images are enlarged to, see `forward`. Published rules enlarge none.
        loss_weights: weight of each level's mean end-point error in training, coarse to fine.
        published_loss_weights: the paper's weights of sums over pixels, in the units that `levels` returns.
        training_defaults: options of `gocor train` in which this network differs from the general defaults.
        published_rules: pairs (pattern, replacement) that turn published parameter names into ours.
        coarse_side: side of the square images that `coarse_features` takes; `None` if the network gives no coarse
            matches and so cannot align images of a wide baseline.
        learning_rate_factors: factors of the learning rate by the beginning of parameter names.
        can_flip: whether `forward_with_flips` also matches mirrored images.
        autocast_dtype: a 16-bit dtype to work in, or `None`; flows and GOCor's iterations stay in float32.
        graphs: recorded forward passes, see `accelerate`.
    """

    pyramid: nn.Module
    name = ""
    has_global_layer = True
    min_size = 0
    loss_weights: ClassVar[tuple[float, ...]] = ()
    published_loss_weights: ClassVar[tuple[float, ...]] = ()
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    published_rules: ClassVar[Sequence[Rule]] = ()
    coarse_side: ClassVar[int | None] = None
    learning_rate_factors: ClassVar[Mapping[str, float]] = {}
    can_flip: ClassVar[bool] = False
    autocast_dtype: torch.dtype | None = None
    graphs: GraphCache | None = None

    def __init__(self, *, published: bool = False) -> None:
        super().__init__()
        self.published = published
        if published:
            self.min_size = 0

    def use_published_rules(self) -> None:
        """Behave as published code does, which published weights were trained with: pre-processing and GOCor's step."""
        self.published = True
        self.min_size = 0
        for module in self.modules():
            if isinstance(module, GOCor):
                module.scale_free_step = False

    def accelerate(self, dtype: torch.dtype = torch.bfloat16) -> Self:
        """Make inference on a GPU fast: 16-bit convolutions, laid out channels last, and CUDA graphs.

        The first pass of each image size is recorded and later ones replay it, so this pays for many pairs of few
        sizes. On other devices, in training and where gradients are needed nothing is recorded.

        Args:
            dtype: to compute convolutions in; `float32` keeps full precision.
        """
        if dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise ValueError(f"dtype must be bfloat16, float16 or float32, got {dtype}")
        if next(self.parameters()).is_cuda:
            self.autocast_dtype = None if dtype == torch.float32 else dtype
            layout = torch.contiguous_format if dtype == torch.float32 else torch.channels_last  # what is faster
            self.to(memory_format=layout)  # type: ignore[call-overload]
            self.graphs = GraphCache()
        return self

    def forward(
        self,
        reference: Tensor,
        query: Tensor,
        *,
        iters_local: int | None = None,
        iters_global: int | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
    ) -> Tensor:
        """Dense flow between two batches of images.

        Args:
            reference: RGB images `(B, 3, H, W)`, floating point in [0, 255].
            query: RGB images `(B, 3, Hq, Wq)`.
            iters_local: iterations of the local correlation layers, in place of their own.
            iters_global: iterations of the global correlation layer, in place of its own.
            min_size: lower bound of the longer side that the network works at, in place of its own; 0 for none. Flow of
                small images is finer when they are enlarged, at most threefold, and takes longer.
            max_size: upper bound of the same (memory grows with its square); it wins over `min_size`.

        Returns:
            Flow `(B, 2, H, W)`: reference pixel + flow = query pixel, in the query's own pixels.
        """
        check_features("reference", reference)
        check_features("query", query)
        check_pair("reference", reference, "query", query)
        for name, image in (("reference", reference), ("query", query)):
            if image.shape[1] != 3:
                raise ValueError(f"{name} must have 3 channels (RGB), got {image.shape[1]}")
        if max_size is not None:
            check_count("max_size", max_size, minimum=16)
        if min_size is None:
            min_size = self.min_size
        check_count("min_size", min_size)
        estimate = partial(
            self._estimate,
            iters_local=iters_local,
            iters_global=iters_global,
            size=_bounded((reference.shape[2], reference.shape[3]), min_size, max_size),
        )
        if self.graphs is None or self.training or torch.is_grad_enabled() or not reference.is_cuda:
            return estimate(reference, query)
        weights = tuple((p.data_ptr(), p._version) for p in self.parameters())
        key = iters_local, iters_global, min_size, max_size, self.autocast_dtype, self.published, weights
        return self.graphs.run(estimate, (reference, query), key)

    def _estimate(
        self,
        reference: Tensor,
        query: Tensor,
        *,
        iters_local: int | None,
        iters_global: int | None,
        size: tuple[int, int],
    ) -> Tensor:
        """See `forward`; the arguments have been checked."""
        working_size = self.working_size(*size)
        inputs = self.prepare(reference, query, working_size)
        if self.graphs is not None:
            inputs = tuple(image.contiguous(memory_format=torch.channels_last) for image in inputs)
        with _autocast(reference.device, self.autocast_dtype):
            flow = self.levels(*inputs, iters_local=iters_local, iters_global=iters_global)[-1]
        return full_resolution(
            flow.to(torch.promote_types(flow.dtype, torch.float32)),
            working_size,
            (reference.shape[2], reference.shape[3]),
            (query.shape[2], query.shape[3]),
        )

    @abstractmethod
    def working_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width that the network works at, for images of a given size."""

    @abstractmethod
    def prepare(self, reference: Tensor, query: Tensor, size: tuple[int, int]) -> tuple[Tensor, ...]:
        """Images in [0, 255] → what `levels` takes, at the working size."""

    @abstractmethod
    def levels(
        self,
        *inputs: Tensor,
        iters_local: int | None = None,
        iters_global: int | None = None,
        count: int | None = None,
    ) -> list[Tensor]:
        """Flows of every level, or of the `count` coarsest, coarse to fine, in the pixels that `level_units` states."""

    def outputs(self, *inputs: Tensor, **options: Any) -> Outputs:
        """What training needs: the flows of `levels`, and logits of the confidence if the network learns one."""
        return Outputs(self.levels(*inputs, **options), None)

    @abstractmethod
    def level_units(self, height: int, width: int) -> list[tuple[int, int]]:
        """For images of a given size: the (height, width) of the image whose pixels each level's flow counts."""

    @property
    def can_align(self) -> bool:
        """Whether the network gives the coarse matches that the alignment of wide baselines needs."""
        return self.coarse_side is not None

    def coarse_features(self, image: Tensor) -> tuple[Tensor, ...]:
        """Features of RGB images `(B, 3, coarse_side, coarse_side)` in [0, 255], fine to coarse."""
        raise TypeError(f"{self.name or type(self).__name__} gives no coarse matches")

    def coarse_flow(self, reference: tuple[Tensor, ...], query: tuple[Tensor, ...]) -> Tensor:
        """Flow `(B, 2, h, w)` between two images' `coarse_features`, in pixels of the coarse images."""
        raise TypeError(f"{self.name or type(self).__name__} gives no coarse matches")

    def forward_with_flips(self, reference: Tensor, query: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """Flow between images of which one may be mirrored, and which samples were matched mirrored, `(B,)` bool."""
        raise TypeError(f"{self.name or type(self).__name__} cannot match mirrored images")


def _autocast(device: torch.device, dtype: torch.dtype | None) -> Any:
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


def resize_image(image: Tensor, size: tuple[int, int], *, published: bool) -> Tensor:
    """Resize `(B, 3, H, W)` in [0, 255]: anti-aliased, or as published code does, by truncated area averages."""
    if tuple(image.shape[2:]) == size:
        return image
    if not published:
        return F.interpolate(image, size, mode="bilinear", align_corners=False, antialias=True)
    return F.interpolate(image, size, mode="area").floor()


def full_resolution(
    flow: Tensor, working_size: tuple[int, int], size: tuple[int, int], query_size: tuple[int, int]
) -> Tensor:
    """Flow in pixels of the working size → flow on the reference's own grid, in the query's own pixels."""
    grid = flow.shape[2], flow.shape[3]
    flow = scale_flow(flow, grid[1] / working_size[1], grid[0] / working_size[0])  # in pixels of its own grid
    return resize_flow(flow, size, query_size=grid, new_query_size=query_size)


def _bounded(size: tuple[int, int], min_size: int, max_size: int | None) -> tuple[int, int]:
    longer = max(size)
    wanted = max(longer, min(min_size, LARGEST_SCALE * longer))
    if max_size is not None:
        wanted = min(wanted, max_size)
    if wanted == longer:
        return size
    scale = wanted / longer
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def upsample(x: Tensor, size: Any) -> Tensor:
    """Bilinear interpolation to a size, pixel centres kept (align_corners=False)."""
    return F.interpolate(x, size, mode="bilinear", align_corners=False)
