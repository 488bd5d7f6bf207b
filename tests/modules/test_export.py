"""Exported graphs serve any batch, height and width."""

import pytest
import torch
from torch.export import Dim

from gocor import GlobalGOCor, LocalGOCor

BATCH, HEIGHT, WIDTH, QUERY_HEIGHT, QUERY_WIDTH = (
    Dim("batch", min=1), *(Dim(name, min=2) for name in ("height", "width", "query_height", "query_width"))
)  # fmt: skip
OF_REFERENCE, OF_QUERY = {0: BATCH, 2: HEIGHT, 3: WIDTH}, {0: BATCH, 2: QUERY_HEIGHT, 3: QUERY_WIDTH}

GLOBAL = {
    "auto": {},
    "gram": {"form": "gram"},
    "relative": {"query_objective": False, "initializer": "simple", "regularizer": "relative"},
    "bidirectional": {"query_objective": False, "initializer": "simple", "bidirectional": True},
}


@pytest.mark.parametrize("options", GLOBAL.values(), ids=GLOBAL)
def test_global_gocor_of_any_size(options):
    torch.manual_seed(0)
    module = GlobalGOCor(8, iters=1, **options).eval()
    shapes = {"reference": OF_REFERENCE, "query": OF_QUERY}
    example = torch.randn(2, 8, 5, 4), torch.randn(2, 8, 6, 3)
    program = torch.export.export(module, example, dynamic_shapes=shapes).module()
    for batch, size, query_size in ((1, (3, 7), (8, 2)), (3, (6, 6), (4, 5)), (2, (5, 4), (6, 3))):
        reference, query = torch.randn(batch, 8, *size), torch.randn(batch, 8, *query_size)
        torch.testing.assert_close(program(reference, query), module(reference, query), rtol=1e-4, atol=1e-5)


def test_local_gocor_of_any_size():
    torch.manual_seed(0)
    module = LocalGOCor(1, iters=1).eval()
    shapes = {"reference": OF_REFERENCE, "query": OF_REFERENCE}
    program = torch.export.export(module, (torch.randn(2, 8, 5, 4), torch.randn(2, 8, 5, 4)), dynamic_shapes=shapes)
    for shape in ((1, 8, 3, 7), (3, 8, 6, 6), (2, 8, 5, 4)):
        reference, query = torch.randn(shape), torch.randn(shape)
        found = program.module()(reference, query)
        torch.testing.assert_close(found, module(reference, query), rtol=1e-4, atol=1e-5)
