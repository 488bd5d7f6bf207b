"""The choice of the code that runs: the only file that asks for device, dtype, sizes, gradients and export.

GOCor's iterations exist in several *forms* that compute the same result. `module.selected_form(reference, query)`
returns the one that a call would use, and the logger `gocor` reports each choice once, at level DEBUG. To choose
another one, pass `form=` to the module or set the environment variable GOCOR_FORM, which replaces `"auto"` wherever the
named form can run. `python -m gocor.ops.select` prints the table of forms.
"""

import logging
import os
import shutil
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from ..utils.errors import InputError
from .forms import FORMS, Form, forms_table
from .transforms import transformed

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_CORRELATION_RADIUS = 16  # largest radius of the Triton kernels of local correlation
MAX_GRAM_RADIUS = MAX_CORRELATION_RADIUS // 2  # the autocorrelation of a window reaches twice as far
MAX_DENSE_LOOKUP = 4096  # query positions up to which gradients of lookups are computed as matrix products
MAX_LOOKUP_RADIUS = 7  # sixteen integer positions in each direction
MAX_STORED_SCORES = 2**24  # scores of a sample's filters with one query level: 64 MiB in float32
STRIP_ROWS, STRIP_PIXELS = 32, 2**19  # size of a strip of an image: rows on a CPU, pixels on a GPU
MAX_TENSOR_CORE_RADIUS = 4  # the window of eight columns of locations must fit into sixteen columns of features
MANY_LOCATIONS = 4096  # from this number on, the tensor-core kernel is faster for 256 channels too
# Multiply-adds that a GPU does in the time of the kernel launches that the Gram form saves.
GRAM_LAUNCH_SAVINGS = 4e9

# Triton builds its launchers with a C compiler.
_COMPILER = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
HAS_TRITON = find_spec("triton") is not None and _COMPILER is not None
FORM_OVERRIDE = os.environ.get("GOCOR_FORM", "auto")

_CAPABLE: dict[torch.device, bool] = {}  # answers of `kernels_run_on`: asking a device takes 20 microseconds

logger = logging.getLogger("gocor")


def choose_local(
    request: str, features: Tensor, *, radius: int, linear_start: bool, query: bool, gradients: bool
) -> Form:
    """The form of local GOCor.

    Args:
        request: `"auto"`, `"fused"` (any kernel) or the name of a form.
        features: reference features `(B, D, H, W)`.
        radius: R.
        linear_start: whether the initial filters are one multiple of the features, or zero.
        query: whether there is a query objective.
        gradients: whether gradients are needed.
    """
    fits = linear_start and not query and radius <= MAX_GRAM_RADIUS
    kernels = fits and not exporting() and not transformed() and _kernels_support(features)
    cores = kernels and not gradients and radius <= MAX_TENSOR_CORE_RADIUS
    can_run = {
        "tensor-cores": cores and features.shape[1] <= (256 if features.dtype == torch.bfloat16 else 128),
        "gram-kernels": kernels,
        "tiles": radius >= 2 and not (query or gradients) and _on_cpu_without_graph(features),
        "filters": True,
    }
    preferred = can_run | {"tensor-cores": can_run["tensor-cores"] and tensor_cores_are_faster(features)}
    groups = {"fused": ("tensor-cores", "gram-kernels")}
    return _choose("local", request, can_run, preferred, groups, features)


def choose_global(
    request: str,
    reference: Tensor,
    query: Tensor,
    *,
    iters: int,
    weights: tuple[Tensor, Tensor] | None,
    gradients: bool,
) -> Form:
    """The form of global GOCor.

    Args:
        request: `"auto"` or the name of a form; `"gram"` includes its kernels.
        reference: features `(B, D, Hr, Wr)`.
        query: features `(B, D, Hq, Wq)`.
        iters: number of iterations.
        weights: R's two kernels, where there is a query objective.
        gradients: whether gradients are needed.
    """
    fits = weights is None or _smoothing_kernels_fit(*weights)
    kernels = fits and not (gradients or exporting() or transformed()) and _kernels_support(reference)
    strips = weights is None and not gradients and _on_cpu_without_graph(reference, query)
    can_run = {"gram-kernels": kernels, "gram": True, "strips": strips, "filters": True}
    # A graph that is exported for any size takes the specification: no other form is cheaper for all sizes.
    cheaper = not _sizes_are_open(reference, query) and gram_is_cheaper(
        reference, query, iters, query_term=weights is not None
    )
    preferred = {"gram-kernels": kernels and cheaper, "gram": cheaper, "strips": strips, "filters": True}
    return _choose("global", request, can_run, preferred, {"gram": ("gram-kernels", "gram")}, reference)


def choose_correlation(features: Tensor, radius: int) -> Literal["triton", "numba", "matmul", "reference"]:
    """The file of `ops/correlation` whose local correlation is fastest for these features."""
    if radius <= MAX_CORRELATION_RADIUS and _kernels_support(features):
        return "triton"
    if features.device.type == "cpu" and features.dtype in KERNEL_DTYPES and numba_is_usable():
        return "numba"
    return "reference" if radius <= 1 else "matmul"  # a product with a small window is mostly waste


def uses_smoothing_kernels(volume: Tensor, weight1: Tensor, weight2: Tensor) -> bool:
    """Whether Triton kernels compute RᵀR of a volume with these weights `(I, 1, k, k)` and `(O, I, k, k)`."""
    taken = volume.dtype == torch.float32 and _kernels_support(volume) and not transformed()
    return taken and _smoothing_kernels_fit(weight1, weight2)


def uses_lookup_kernel(filters: Tensor, query: Tensor, radius: int) -> bool:
    """Whether a Triton kernel computes lookups. Otherwise they are matrix products with windows of the query."""
    return radius <= MAX_LOOKUP_RADIUS and _kernels_support(filters) and _kernels_support(query)


def stores_scores(filters: Tensor, *query_pyramid: Tensor) -> bool:
    """Whether repeated lookups store scores for later lookups: on a CPU, without gradients, export and compilation."""
    return _on_cpu_without_graph(filters, *query_pyramid)


def stores_all_scores(filters: Tensor, query: Tensor) -> bool:
    """Whether the scores of all pairs of filters and query positions are stored, or only those around the positions.

    All pairs take the time of a few lookups, but memory that grows with the square of the size, so there is a limit.
    """
    return filters.shape[2:].numel() * query.shape[2:].numel() <= MAX_STORED_SCORES


def rows_of_strips(image: Tensor, *weights: Tensor) -> int | None:
    """Rows of an image that pass through a network's first convolutions at a time, an even number; `None` for all.

    On a CPU, the activations of a strip stay in the cache. On a GPU, strips bound the memory that large images take.
    """
    if _on_cpu_without_graph(image, *weights):
        return STRIP_ROWS
    height, width = image.shape[2], image.shape[3]
    if not image.is_cuda or needs_gradients(image, *weights) or exporting() or torch.compiler.is_compiling():
        return None
    return max(STRIP_ROWS, STRIP_PIXELS // width // 2 * 2) if height * width > 2 * STRIP_PIXELS else None


def uses_lookup_backward_kernel(filters: Tensor, query: Tensor, radius: int) -> bool:
    """Whether a Triton kernel computes the gradients of lookups.

    The kernel's time grows with the number of filters; that of matrix products also with the number of query positions.
    Matrix products are faster where these are few, because atomic additions to few positions wait for each other.
    """
    return uses_lookup_kernel(filters, query, radius) and query.shape[2] * query.shape[3] > MAX_DENSE_LOOKUP


def needs_gradients(*tensors: Tensor) -> bool:
    """Whether autograd records an operation on these tensors. Inside `torch.func` it may, so the answer is yes."""
    return torch.is_grad_enabled() and (transformed() or any(tensor.requires_grad for tensor in tensors))


def can_stop_early(features: Tensor) -> bool:
    """Whether the next operation may depend on values: not in a graph that is exported, compiled or recorded."""
    if torch.compiler.is_compiling() or torch.compiler.is_exporting() or transformed():
        return False
    return not (features.is_cuda and torch.cuda.is_current_stream_capturing())


def exporting() -> bool:
    """Whether a graph is being exported. It must not contain custom operators.

    Up to torch 2.12, `is_exporting` is also true in a plain `torch.compile`.
    """
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def gram_is_cheaper(reference: Tensor, query: Tensor, iters: int, *, query_term: bool) -> bool:
    """Whether the global Gram form takes fewer multiply-adds in matrix products than the form on filters.

    Everything else costs the same in both. On a GPU, the Gram form also saves kernel launches.
    """
    batch, d = reference.shape[:2]
    n, m = reference.shape[2:].numel(), query.shape[2:].numel()
    pull = n + m if query_term else n  # rows of the gradient's coefficients
    on_filters = d * n * ((n + m) + iters * 2 * pull)
    on_scores = d * n * (n + m) + d * (n + m) * pull + iters * n * (n + m) * pull
    allowance = 0 if reference.device.type == "cpu" else GRAM_LAUNCH_SAVINGS
    batch = 1 if isinstance(batch, torch.SymInt) and exporting() else batch  # an exported graph serves any batch
    return batch * on_scores < batch * on_filters + allowance


def tensor_cores_are_faster(features: Tensor) -> bool:
    """Whether the tensor-core kernel is faster than the Gram kernels, as measured on an H200."""
    batch, channels, height, width = features.shape
    if features.dtype == torch.bfloat16:
        return channels <= 128 or batch * height * width >= MANY_LOCATIONS
    return channels <= (64 if features.dtype == torch.float32 else 128)


def kernels_run_on(device: torch.device) -> bool:
    """Whether the Triton kernels run on a device: an NVIDIA GPU from Ampere (8.0) on, with Triton and a C compiler."""
    if not HAS_TRITON or device.type != "cuda" or torch.version.hip is not None:
        return False
    if device not in _CAPABLE:
        _CAPABLE[device] = torch.cuda.get_device_capability(device) >= (8, 0)
    return _CAPABLE[device]


# A compiled graph must not depend on a dictionary that changes while the graph is made. This is what the decorator
# `torch.compiler.assume_constant_result` sets; the decorator would import all of torch.compile, which takes 0.8 s.
kernels_run_on._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def numba_is_usable() -> bool:
    """Whether `correlation.numba` can be imported: Numba may be missing, too old for NumPy, or switched off."""
    try:
        from .correlation import numba  # noqa: F401
    except (ImportError, OSError):
        return False
    return True


def _kernels_support(features: Tensor) -> bool:
    return features.dtype in KERNEL_DTYPES and kernels_run_on(features.device)


def _smoothing_kernels_fit(weight1: Tensor, weight2: Tensor) -> bool:
    return weight1.shape[2] == 3 and {*weight2.shape[:2]} <= {16, 32, 64}


def certain(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds; in a graph that is exported for any size, whether it holds for all sizes.

    A plain `if` would restrict the graph to the sizes that take the same branch.
    """
    if not isinstance(condition, torch.SymBool):
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def _sizes_are_open(*features: Tensor) -> bool:
    """Whether a graph is being exported for any height or width of these maps."""
    return exporting() and any(isinstance(size, torch.SymInt) for x in features for size in x.shape[2:])


def _traced() -> bool:
    return torch.compiler.is_compiling() or exporting()


def _on_cpu_without_graph(*tensors: Tensor) -> bool:
    """Whether the tensors are on a CPU, and neither autograd, `torch.func`, export nor a compiler records the call."""
    on_cpu = all(tensor.device.type == "cpu" for tensor in tensors)
    return on_cpu and not (needs_gradients(*tensors) or _traced() or transformed())


def _choose(
    module: Literal["local", "global"],
    request: str,
    can_run: dict[str, bool],
    preferred: dict[str, bool],
    groups: Mapping[str, tuple[str, ...]],
    features: Tensor,
) -> Form:
    """The requested form, which must be able to run, or the first preferred one."""
    if request != "auto":
        names, allowed = groups.get(request, (request,)), can_run
    elif can_run.get(FORM_OVERRIDE, False):
        names, allowed = (FORM_OVERRIDE,), can_run
    else:
        names, allowed = tuple(preferred), preferred
    name = next((name for name in names if allowed.get(name)), None)
    if name is None:
        needs = "; or ".join(form.needs for form in FORMS if form.name in names and form.module in (module, "both"))
        raise InputError(f"form={request!r} cannot run here: it needs {needs}")
    form = next(form for form in FORMS if form.name == name and form.module in (module, "both"))
    if not _traced():
        _log_once(module, form, request, features.device.type, features.dtype)
    return form


@cache
def _log_once(module: str, form: Form, request: str, device: str, dtype: torch.dtype) -> None:
    logger.debug("%s GOCor on %s in %s runs as %r (form=%r)", module, device, dtype, form.name, request)


if __name__ == "__main__":
    print(forms_table())
