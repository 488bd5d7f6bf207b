"""Base class of the networks: raw images in, full-resolution flow out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..modules.gocor import GOCor
from ..utils.checks import check_count, check_features, check_pair
from ..utils.errors import InputError
from ..utils.precision import cpu_multiplies_bfloat16
from .abilities import Abilities
from .graphs import GraphCache
from .matching_layers import GlobalMatching, LocalMatching
from .outputs import Outputs, Prediction
from .published_names import Rule
from .resizing import bounded_size, full_resolution, upsample

PUBLISHED_LOSS_WEIGHTS = (0.32, 0.08, 0.02, 0.01, 0.005)  # The paper's weights of sums over pixels, coarse to fine.


class MatchingNetwork(Abilities, nn.Module, ABC):
    """Base class of the networks: raw images in, full-resolution flow out.

    A network states every fact about itself that other parts of the package need, so a new one needs no edit elsewhere
    (see `docs/extending.md`). It must define `round_size`, `prepare`, `levels` and `level_units`. `Abilities` has the
    optional abilities.

    Attributes:
        pyramid: the feature extractor. `load_model` fills a `VGGPyramid` with the weights that ship.
        published: pre-process images as published code does, because published checkpoints were trained that way:
            images are resized by area averages and truncated to integers. Otherwise they are resized by anti-aliased
            bilinear interpolation.
        variant: options in which it differs from the registered network, by dotted name, see `variants`.
        has_global_layer: whether the network has a global correlation layer, which `iters_global` is for.
        min_size: lower bound of the longer side that the network works at, see `forward`. Published rules set none.
        min_area: lower bound of the area that it works at, in units of `min_size`²: elongated images are enlarged more.
        loss_weights: weight of each level's mean end-point error in training, coarse to fine.
        published_loss_weights: the paper's weights of sums over pixels, in the units that `levels` returns.
        training_defaults: options of `gocor train` in which this network differs from the general defaults.
        published_rules: pairs (pattern, replacement) that translate published parameter names to ours.
        learning_rate_factors: factors of the learning rate, by prefix of the parameter names.
        fixed_side: longer side of the working size, if it is the same for all images. The operations of the network
            then depend neither on the size of the images nor on values, so that one graph can be exported for all.
        added_parts: names of parts that older weights of the network lack. Training may start from such weights.
        suits_bfloat16: whether the flow is as accurate with convolutions in bfloat16. Matching then uses it on CPUs
            that have instructions for it.
        autocast_dtype: 16-bit dtype of the convolutions, or `None`; flows and GOCor's iterations stay in float32.
        graphs: recorded forward passes, see `accelerate`.
    """

    pyramid: nn.Module
    has_global_layer = True
    min_size = 0
    min_area: ClassVar[float] = 0.0
    loss_weights: ClassVar[tuple[float, ...]] = ()
    published_loss_weights: ClassVar[tuple[float, ...]] = ()
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    published_rules: ClassVar[Sequence[Rule]] = ()
    learning_rate_factors: ClassVar[Mapping[str, float]] = {}
    added_parts: ClassVar[tuple[str, ...]] = ()
    fixed_side: int | None = None
    suits_bfloat16: ClassVar[bool] = False
    autocast_dtype: torch.dtype | None = None
    graphs: GraphCache | None = None

    def __init__(self, *, published: bool = False) -> None:
        super().__init__()
        self.pyramid = nn.Identity()
        self.variant: dict[str, Any] = {}
        self.published = published
        if published:
            self.min_size = 0

    def use_published_images(self) -> None:
        """Pre-process images as published code does, for networks that start from published weights."""
        self.published = True
        self.min_size = 0

    def use_published_rules(self) -> None:
        """Pre-process images and compute GOCor's step length as published code does, for published weights."""
        self.use_published_images()
        for module in self.modules():
            if isinstance(module, GOCor):
                module.scale_free_step = False

    def accelerate(self, dtype: torch.dtype = torch.bfloat16) -> Self:
        """Speed up inference by 16-bit convolutions, and on a GPU by the channels-last layout and CUDA graphs too.

        The first pass of each image size is recorded and later passes replay it, so graphs help with many pairs of few
        sizes. Nothing is recorded on other devices, in training mode, or while gradients are enabled. A CPU computes
        convolutions in bfloat16 if it has instructions for that, and otherwise nothing changes there.

        Args:
            dtype: dtype of the convolutions; `float32` keeps full precision.
        """
        if dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise InputError(f"dtype must be bfloat16, float16 or float32, got {dtype}")
        device = next(self.parameters()).device
        if device.type == "cpu" and dtype == torch.bfloat16 and cpu_multiplies_bfloat16():
            self.autocast_dtype = dtype
        if device.type == "cuda":
            self.autocast_dtype = None if dtype == torch.float32 else dtype
            # Float32 convolutions are faster in the contiguous layout, 16-bit ones in channels last.
            layout = torch.contiguous_format if dtype == torch.float32 else torch.channels_last
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
        updates: int | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
    ) -> Tensor:
        """Dense flow between two batches of images.

        Args:
            reference: RGB images `(B, 3, H, W)`, floating point in [0, 255].
            query: RGB images `(B, 3, Hq, Wq)`.
            iters_local: number of iterations of the local correlation layers; `None` for the layers' own.
            iters_global: number of iterations of the global correlation layer; `None` for the layer's own.
            updates: largest number of updates of a recurrent network; fewer take less time; `None` for its own.
            min_size: see `working_size`; `None` for the network's own.
            max_size: see `working_size`.

        Returns:
            Flow `(B, 2, H, W)`: reference pixel + flow = query pixel, in the query's own pixels.
        """
        options = {"iters_local": iters_local, "iters_global": iters_global, "updates": updates}
        return self._run(reference, query, options, min_size, max_size, confidence=False)

    def predict(
        self,
        reference: Tensor,
        query: Tensor,
        *,
        iters_local: int | None = None,
        iters_global: int | None = None,
        updates: int | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
    ) -> Prediction:
        """The flow of `forward`, and its confidence and visibility if the network learns them; same arguments."""
        options = {"iters_local": iters_local, "iters_global": iters_global, "updates": updates}
        found = self._run(reference, query, options, min_size, max_size, confidence=self.learns_confidence)
        flow, *probabilities = found.split([2, *[1] * (found.shape[1] - 2)], 1)
        return Prediction(flow, *probabilities) if probabilities else Prediction(flow, None, None)

    def _run(
        self,
        reference: Tensor,
        query: Tensor,
        options: dict[str, int | None],
        min_size: int | None,
        max_size: int | None,
        *,
        confidence: bool,
    ) -> Tensor:
        """Flow `(B, 2, H, W)`, with `confidence` two more channels of probabilities; replays a CUDA graph if any."""
        check_features("reference", reference)
        check_features("query", query)
        check_pair("reference", reference, "query", query)
        for name, image in (("reference", reference), ("query", query)):
            if image.shape[1] != 3:
                raise InputError(f"{name} must have 3 channels (RGB), got {image.shape[1]}")
        if options["updates"] is not None:
            check_count("updates", options["updates"], minimum=1)
            if self.updates is None:
                raise InputError(f"{self.name or type(self).__name__} is not recurrent: updates must be None")
        options = {name: value for name, value in options.items() if value is not None or name != "updates"}
        least = self.min_size if min_size is None else min_size
        size = self.working_size(reference.shape[2], reference.shape[3], min_size=least, max_size=max_size)
        estimate = partial(self._estimate, options=options, size=size, confidence=confidence)
        if self.graphs is None or self.training or torch.is_grad_enabled() or not reference.is_cuda:
            return estimate(reference, query)
        weights = tuple((p.data_ptr(), p._version) for p in self.parameters())
        key = (*options.items(), size, confidence, self.autocast_dtype, self.published, weights)
        return self.graphs.run(estimate, (reference, query), key)

    def _estimate(
        self,
        reference: Tensor,
        query: Tensor,
        *,
        options: dict[str, int | None],
        size: tuple[int, int],
        confidence: bool,
    ) -> Tensor:
        """See `_run`; the arguments have been checked, and `size` is the working size."""
        inputs = self.prepare(reference, query, size)
        if self.graphs is not None:
            inputs = tuple(image.contiguous(memory_format=torch.channels_last) for image in inputs)
        with autocast(reference.device, self.autocast_dtype):
            flow, logits = (
                self.finest_outputs(*inputs, **options) if confidence else (self.finest_flow(*inputs, **options), None)
            )
        own = reference.shape[2], reference.shape[3]
        flow = flow.to(torch.promote_types(flow.dtype, torch.float32))
        flow = full_resolution(flow, size, own, (query.shape[2], query.shape[3]))
        return flow if logits is None else torch.cat([flow, upsample(logits.float(), own).sigmoid()], 1)

    def working_size(
        self, height: int, width: int, *, min_size: int = 0, max_size: int | None = None
    ) -> tuple[int, int]:
        """Height and width to which both images are resized, for a reference of a given size.

        Args:
            height: the reference's.
            width: the reference's.
            min_size: lower bound of the longer side. Smaller images are enlarged, at most threefold, which makes their
                flow finer and takes longer. Elongated images are enlarged further by networks that state a `min_area`.
            max_size: upper bound of the longer side, or `None`. Memory grows with its square. It wins over `min_size`.
        """
        return self.round_size(*bounded_size(height, width, min_size, max_size, self.min_area))

    @abstractmethod
    def round_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width that the network can process, for images of a given size."""

    @abstractmethod
    def prepare(self, reference: Tensor, query: Tensor, size: tuple[int, int]) -> tuple[Tensor, ...]:
        """Images in [0, 255] → the inputs of `levels`, at the working size."""

    @abstractmethod
    def levels(
        self,
        *inputs: Tensor,
        iters_local: int | None = None,
        iters_global: int | None = None,
        count: int | None = None,
    ) -> list[Tensor]:
        """Flows of every level, or of the `count` coarsest, coarse to fine, in the pixels that `level_units` states."""

    def finest_flow(self, *inputs: Tensor, **iters: Any) -> Tensor:
        """The flow of the finest level; arguments as in `levels`."""
        return self.levels(*inputs, **iters)[-1]

    def outputs(self, *inputs: Tensor, **options: Any) -> Outputs:
        """What training needs: the flows of `levels`, and logits of the confidence if the network learns one."""
        return Outputs(self.levels(*inputs, **options), None)

    @abstractmethod
    def level_units(self, height: int, width: int) -> list[tuple[int, int]]:
        """For each level, the (height, width) of the image in whose pixels its flow is, for images of a given size."""

    def correlation_layers(self) -> list[nn.Module]:
        """The modules whose activations training may recompute in the backward pass to save memory."""
        return [module for module in self.modules() if isinstance(module, (GlobalMatching, LocalMatching))]

    def correlation_names(self) -> list[str]:
        """Names of the modules that differ between a network with GOCor and the same network without."""
        layers = {id(module) for module in self.correlation_layers()}
        layers |= {id(module) for module in self.modules() if isinstance(module, GOCor)}
        return [name for name, module in self.named_modules() if id(module) in layers]


def autocast(device: torch.device, dtype: torch.dtype | None) -> Any:
    """A context in which convolutions have a 16-bit dtype, or one without effect for `None`."""
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)
