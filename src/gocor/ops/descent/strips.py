"""Global GOCor on a CPU without gradients: all iterations of a few rows of filters while their scores are in the cache.

Without a query objective every filter is optimised by itself, so that strips of rows can be taken one after the other.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .reference import Problem, steepest_descent

SCORES = 2**19  # number of scores of a strip's filters with the reference: 2 MiB in float32


def descend_in_strips(problem: Callable[[slice], Problem], filters: Tensor, iters: int) -> Tensor:
    """Optimise a filter map and correlate it with the query.

    Args:
        problem: what to minimise for some rows of the filter map, without query objective.
        filters: w⁰ `(B, D, H, W)`.
        iters: number of iterations.

    Returns:
        The volume `(B, H′·W′, H, W)`.
    """
    batch, _, height, width = filters.shape
    rows = max(1, SCORES // (batch * width * height * width))
    volumes = []
    for top in range(0, height, rows):
        strip = slice(top, top + rows)
        own = problem(strip)
        volumes.append(own.correlate(steepest_descent(own, filters[:, :, strip], iters), own.query))
    return torch.cat(volumes, 2)
