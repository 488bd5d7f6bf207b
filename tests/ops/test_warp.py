import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from gocor.ops.warp import (
    compose_flows,
    flow_to_mapping,
    forward_backward_error,
    inside_mask,
    invert_flow,
    mapping_to_flow,
    occlusion_mask,
    pixel_grid,
    resize_flow,
    warp,
)

SIZES = st.tuples(st.integers(1, 7), st.integers(1, 7))


def by_hand(query: torch.Tensor, flow: torch.Tensor, padding: str) -> torch.Tensor:
    """The definition of bilinear sampling, pixel by pixel."""
    batch, channels, query_height, query_width = query.shape
    out = torch.zeros(batch, channels, *flow.shape[2:], dtype=query.dtype)
    for b, row, column in itertools.product(range(batch), *map(range, flow.shape[2:])):
        x, y = column + flow[b, 0, row, column].item(), row + flow[b, 1, row, column].item()
        if not (math.isfinite(x) and math.isfinite(y)):
            continue
        if padding == "border":
            x, y = min(max(x, 0), query_width - 1), min(max(y, 0), query_height - 1)
        for i, j in itertools.product((0, 1), (0, 1)):
            xi, yj = math.floor(x) + i, math.floor(y) + j
            if 0 <= xi < query_width and 0 <= yj < query_height:
                out[b, :, row, column] += (1 - abs(x - xi)) * (1 - abs(y - yj)) * query[b, :, yj, xi]
    return out


def affine_flow(matrix: torch.Tensor, offset: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Flow of x → matrix·x + offset, `(1, 2, H, W)`."""
    grid = pixel_grid(height, width, torch.float64)
    return torch.einsum("ij,bjhw->bihw", matrix, grid) + offset.view(1, 2, 1, 1) - grid


def random_affine(generator: torch.Generator, change: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    matrix = torch.eye(2).double() + change * (2 * torch.rand(2, 2, dtype=torch.float64, generator=generator) - 1)
    return matrix, 2 * torch.randn(2, dtype=torch.float64, generator=generator)


def test_the_grid_holds_x_then_y():
    grid = pixel_grid(2, 3)
    assert grid.shape == (1, 2, 2, 3)
    assert grid[0, 0].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert grid[0, 1].tolist() == [[0, 0, 0], [1, 1, 1]]


@settings(max_examples=30, deadline=None)
@given(size=SIZES, query_size=SIZES, padding=st.sampled_from(["zeros", "border"]), seed=st.integers(0, 2**31))
def test_warp_follows_the_definition(size, query_size, padding, seed):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(2, 3, *query_size, dtype=torch.float64, generator=generator)
    flow = 4 * torch.randn(2, 2, *size, dtype=torch.float64, generator=generator)
    flow[:, :, 0, 0] = flow[:, :, 0, 0].round()
    torch.testing.assert_close(warp(query, flow, padding=padding), by_hand(query, flow, padding))


def test_warp_goes_the_right_way(device):
    """The reference pixel (1, 0) moves by (2, 1): it is found at (3, 1) in the query."""
    query = torch.arange(20.0, device=device).view(1, 1, 4, 5)
    flow = torch.tensor([2.0, 1.0], device=device).view(1, 2, 1, 1).expand(1, 2, 4, 5)
    assert warp(query, flow)[0, 0, 0, 1] == query[0, 0, 1, 3]


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_warp_agrees_with_grid_sample(padding, device):
    query, flow = torch.randn(2, 3, 6, 8, device=device), 5 * torch.randn(2, 2, 7, 5, device=device)
    grid = flow_to_mapping(flow).permute(0, 2, 3, 1) / torch.tensor([7, 5], device=device) * 2 - 1
    expected = F.grid_sample(query, grid, padding_mode=padding, align_corners=True)
    torch.testing.assert_close(warp(query, flow, padding=padding), expected, atol=1e-5, rtol=1e-4)


def test_nearest_takes_the_nearest(device):
    query = torch.arange(5.0, device=device).view(1, 1, 1, 5)
    flow = torch.zeros(1, 2, 1, 5, device=device)
    flow[0, 0, 0] = torch.tensor([0.4, 0.6, -0.4, 0.7, 9.0])
    assert warp(query, flow, mode="nearest").flatten().tolist() == [0, 2, 2, 4, 0]
    assert warp(query, flow, mode="nearest", padding="border").flatten().tolist() == [0, 2, 2, 4, 4]


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_flow_that_is_not_finite_gives_zeros_and_clean_gradients(padding, mode, value, device):
    query = torch.rand(1, 3, 4, 5, device=device).add(1).requires_grad_()
    flow = torch.zeros(1, 2, 4, 5, device=device)
    flow[0, 0, 1, 2] = flow[0, 1, 3, 4] = value
    flow.requires_grad_()
    out = warp(query, flow, padding=padding, mode=mode)
    assert (out[0, :, 1, 2] == 0).all()
    assert (out[0, :, 3, 4] == 0).all()
    assert (out > 0.9).sum() == 3 * 18
    out.sum().backward()
    assert query.grad.isfinite().all()
    assert flow.grad.isfinite().all()


def test_huge_flow_is_outside(device):
    query = torch.ones(1, 1, 3, 3, device=device)
    for value in (1e5, 3e9, 1e20, 3e38, -3e38):
        flow = torch.full((1, 2, 3, 3), value, device=device)
        assert (warp(query, flow) == 0).all()
        assert (warp(query, flow, padding="border") - 1).abs().max() < 1e-6


@pytest.mark.parametrize("query_size", [(5, 4), (1, 4), (1, 1)])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_gradients_of_warp(query_size, padding, device):
    query = torch.randn(2, 2, *query_size, dtype=torch.float64, device=device, requires_grad=True)
    # Away from the kinks at whole pixels and at the border.
    flow = (
        torch.randint(-1, 2, (2, 2, 3, 4), device=device) + 0.1 + 0.8 * torch.rand(2, 2, 3, 4, device=device).double()
    )
    assert torch.autograd.gradcheck(lambda q, f: warp(q, f, padding=padding), (query, flow.requires_grad_()))


def test_gradients_of_the_algebra(device):
    first = (1.3 * torch.rand(1, 2, 3, 4, dtype=torch.float64, device=device)).requires_grad_()
    second = torch.randn(1, 2, 4, 5, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: compose_flows(a, b)[0], (first, second))
    assert torch.autograd.gradcheck(lambda a: invert_flow(a)[0], (first,))
    assert torch.autograd.gradcheck(
        lambda a: resize_flow(a, (5, 3), query_size=(4, 4), new_query_size=(7, 9)), (first,)
    )
    inside = inside_mask(first, (4, 5))
    assert torch.autograd.gradcheck(lambda a, b: forward_backward_error(a, b)[inside], (first, second))


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_sixteen_bits(half, device):
    """Beyond x = 2048 float16 has no odd numbers: coordinates must not be rounded to it."""
    query = torch.rand(1, 1, 2, 3000, device=device).to(half)
    flow = torch.full((1, 2, 2, 3000), -1.0, device=device)
    flow[:, 1] = 0
    expected = F.pad(query, (1, 0))[..., :-1]
    for dtype in (half, torch.float32):
        out = warp(query, flow.to(dtype))
        assert out.dtype == half
        torch.testing.assert_close(out, expected, atol=4e-3, rtol=0)
    assert flow_to_mapping(flow.to(half)).dtype == torch.float32
    assert torch.equal(inside_mask(flow.to(half), (2, 3000)), inside_mask(flow, (2, 3000)))
    inverse, valid = invert_flow(flow.to(half))
    assert inverse.dtype == half
    assert torch.equal(inverse[0, 0].float(), valid[0, 0].float())
    assert resize_flow(flow.to(half), (1, 1500)).dtype == half
    assert compose_flows(flow.to(half), flow.to(half))[0].dtype == half
    assert forward_backward_error(flow.to(half), flow.to(half)).dtype == half


def test_mixed_dtypes_and_an_empty_batch(device):
    assert (
        warp(torch.ones(1, 1, 2, 2, device=device).double(), torch.zeros(1, 2, 2, 2, device=device)).dtype
        == torch.float64
    )
    assert (
        warp(torch.ones(1, 1, 2, 2, device=device), torch.zeros(1, 2, 2, 2, device=device).double()).dtype
        == torch.float32
    )
    assert warp(torch.ones(0, 3, 4, 5, device=device), torch.ones(0, 2, 2, 3, device=device)).shape == (0, 3, 2, 3)
    assert invert_flow(torch.ones(0, 2, 2, 3, device=device), (4, 5))[0].shape == (0, 2, 4, 5)


@settings(max_examples=30, deadline=None)
@given(size=SIZES, seed=st.integers(0, 2**31))
def test_mappings_and_flows_are_two_views(size, seed):
    flow = torch.randn(2, 2, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(mapping_to_flow(flow_to_mapping(flow)), flow)
    assert torch.equal(flow_to_mapping(torch.zeros_like(flow))[:1], pixel_grid(*size, torch.float64))


def test_inside_mask_includes_the_border():
    flow = torch.zeros(1, 2, 1, 6)
    flow[0, 0, 0] = torch.tensor([0.0, -1.01, 1.0, 0.1, math.nan, math.inf])  # targets 0, -0.01, 3, 3.1
    assert inside_mask(flow, (1, 4)).flatten().tolist() == [True, False, True, False, False, False]
    flow[:, 1] = 0.5
    assert not inside_mask(flow, (1, 4)).any()


def interior(size: tuple[int, int], old: tuple[int, int]) -> torch.Tensor:
    """Pixels of the resized grid that are read between pixel centres of the old one, where nothing is extrapolated."""
    y, x = (((torch.arange(n) + 0.5) * m / n - 0.5) for n, m in zip(size, old, strict=True))
    return ((y >= 0) & (y <= old[0] - 1))[:, None] & ((x >= 0) & (x <= old[1] - 1))


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.tuples(*[st.tuples(st.integers(2, 12), st.integers(2, 12))] * 4),
    alike=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_resizing_the_flow_of_an_affine_map_gives_the_flow_of_the_resized_map(sizes, alike, seed):
    size, new_size, query_size, new_query_size = sizes
    matrix, offset = random_affine(torch.Generator().manual_seed(seed), 0.5)
    reference_ratio = torch.tensor(new_size[::-1]).double() / torch.tensor(size[::-1])
    query_ratio = torch.tensor(new_query_size[::-1]).double() / torch.tensor(query_size[::-1])
    if alike:
        query_ratio, options = reference_ratio, {}
    else:
        options = {"query_size": query_size, "new_query_size": new_query_size}
    # x' = (matrix((p' + ½)/r - ½) + offset + ½)q - ½
    new_matrix = query_ratio[:, None] * matrix / reference_ratio
    new_offset = (matrix @ (0.5 / reference_ratio - 0.5) + offset + 0.5) * query_ratio - 0.5
    expected = affine_flow(new_matrix, new_offset, *new_size)
    ours = resize_flow(affine_flow(matrix, offset, *size), new_size, **options)
    where = interior(new_size, size)
    torch.testing.assert_close(ours[..., where], expected[..., where])


def test_resizing_scales_x_by_width_and_y_by_height(device):
    flow = torch.ones(1, 2, 4, 6, device=device)
    resized = resize_flow(flow, (12, 3))
    assert resized.shape == (1, 2, 12, 3)
    assert (resized[:, 0] == 0.5).all()
    assert (resized[:, 1] == 3).all()
    assert torch.equal(resize_flow(flow, (4, 6)), flow)


def test_nearest_resizing_keeps_holes_apart(device):
    flow = torch.ones(1, 2, 3, 3, device=device)
    flow[..., 1, 1] = math.nan
    assert resize_flow(flow, (9, 9), mode="nearest").isnan().sum() == 2 * 9
    assert resize_flow(flow, (9, 9)).isnan().sum() > 2 * 9


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_composition_of_affine_flows(seed):
    generator = torch.Generator().manual_seed(seed)
    (first, first_offset), (second, second_offset) = random_affine(generator), random_affine(generator)
    ours, valid = compose_flows(affine_flow(first, first_offset, 9, 11), affine_flow(second, second_offset, 12, 8))
    expected = affine_flow(second @ first, second @ first_offset + second_offset, 9, 11)
    assert torch.equal(valid, inside_mask(affine_flow(first, first_offset, 9, 11), (12, 8)))
    torch.testing.assert_close(ours[valid.expand_as(ours)], expected[valid.expand_as(ours)])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_inversion_of_affine_flows(seed):
    matrix, offset = random_affine(torch.Generator().manual_seed(seed))
    inverse, valid = invert_flow(affine_flow(matrix, offset, 15, 18), (12, 13))
    back = torch.linalg.inv(matrix)
    expected = affine_flow(back, -back @ offset, 12, 13)
    change = (back - torch.eye(2)).abs().sum(1).view(1, 2, 1, 1)  # the most that the inverse changes by in a pixel
    assert (((inverse - expected).abs() <= change + 1e-9) | ~valid).all()
    assert valid[inside_mask(expected, (15, 18))].all()  # stretched by less than two: no holes


def test_inversion_of_a_translation_is_exact(device):
    flow = torch.tensor([1.25, -2.0], device=device).view(1, 2, 1, 1).expand(1, 2, 5, 6)
    inverse, valid = invert_flow(flow, (4, 8))
    assert torch.allclose(inverse, valid * -flow[..., :1, :1])
    assert valid[0, 0].int().tolist() == [[0, 1, 1, 1, 1, 1, 1, 1]] * 3 + [[0] * 8]


def test_inversion_marks_holes_averages_collisions_and_leaves_out_what_is_not_finite(device):
    flow = torch.zeros(1, 2, 1, 6, device=device)
    flow[0, 0, 0] = torch.tensor([0.0, 0.0, 3.0, 2.0, math.nan, math.inf])  # targets 0, 1, 5, 5
    inverse, valid = invert_flow(flow)
    assert valid.flatten().tolist() == [True, True, False, False, False, True]
    assert inverse[0, 0, 0].tolist() == [0, 0, 0, 0, 0, -2.5]


def test_forward_backward(device):
    forward = torch.zeros(1, 2, 3, 6, device=device)
    forward[:, 0] = 2.0
    backward = torch.zeros(1, 2, 3, 7, device=device)
    backward[:, 0] = -2.0
    error, occluded = forward_backward_error(forward, backward), occlusion_mask(forward, backward)
    assert error.shape == occluded.shape == (1, 1, 3, 6)
    assert error[0, 0, 0].tolist() == [0, 0, 0, 0, 0, math.inf]  # the last one lands at 7, outside
    assert occluded[0, 0, 0].tolist() == [False] * 5 + [True]
    backward[0, 1, :, 3] = 4.0
    backward[0, 0, :, 6] = math.nan
    forward[0, 1, 0, 0] = math.nan
    error, occluded = forward_backward_error(forward, backward), occlusion_mask(forward, backward)
    assert error[0, 0, :, 0].tolist() == [math.inf, 0, 0]
    assert error[0, 0, 1, [1, 2, 4]].tolist() == [4, 0, math.inf]
    assert occluded[0, 0, 1, [0, 1, 2, 4, 5]].tolist() == [False, True, False, True, True]
    assert not occlusion_mask(forward, backward, absolute=17.0)[0, 0, 1, 1]
    assert not occlusion_mask(forward, backward, relative=1.0)[0, 0, 1, 1]


def test_a_flow_and_its_inverse_agree(device):
    generator = torch.Generator().manual_seed(3)
    flow = affine_flow(*random_affine(generator, 0.05), 20, 22).float().to(device)
    inverse, valid = invert_flow(flow, (24, 21))
    error = forward_backward_error(flow, inverse)
    known = inside_mask(flow, (24, 21)) & (warp(valid.float(), flow) > 0.999)
    assert error[known].max() < 0.2
    assert not occlusion_mask(flow, inverse)[known].any()


def test_compiles_without_a_graph_break(device):
    def everything(query, forward, backward):
        composed, valid = compose_flows(forward, backward)
        inverse, _ = invert_flow(forward, (6, 7))
        error = forward_backward_error(forward, backward)
        return warp(query, forward, padding="border"), composed, valid, inverse, error, resize_flow(forward, (8, 8))

    query, backward = torch.randn(1, 3, 6, 7, device=device), torch.randn(1, 2, 6, 7, device=device)
    forward = torch.randn(1, 2, 4, 5, device=device)
    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(query, forward, backward), everything(query, forward, backward))


def test_exports_for_any_size():
    class Warp(torch.nn.Module):
        def forward(self, query, flow):
            return warp(query, resize_flow(flow, query.shape[-2:]))

    sizes = {2: torch.export.Dim("height", min=2), 3: torch.export.Dim("width", min=2)}
    query, flow = torch.randn(1, 3, 8, 9), torch.randn(1, 2, 4, 5)
    program = torch.export.export(Warp(), (query, flow), dynamic_shapes={"query": sizes, "flow": None})
    other = torch.randn(1, 3, 11, 7)
    torch.testing.assert_close(program.module()(other, flow), Warp()(other, flow))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q, f: warp(q, f[:, :1]), ValueError, r"flow must have shape \(B, 2, H, W\), channels x and y"),
        (lambda q, f: warp(q[0], f), ValueError, r"query must have shape \(B, C, H, W\)"),
        (lambda q, f: warp(q.int(), f), TypeError, "query must have a floating-point dtype"),
        (lambda q, f: warp(q, f.tolist()), TypeError, "flow must be a tensor, got list"),
        (
            lambda q, f: warp(q, f.expand(2, 2, 3, 4)),
            ValueError,
            "one device and one batch size, got cpu, 1 and cpu, 2",
        ),
        (lambda q, f: warp(q.to("meta"), f), ValueError, "one device and one batch size, got meta, 1 and cpu, 1"),
        (lambda q, f: warp(q, f, mode="bicubic"), ValueError, "mode must be one of 'bilinear', 'nearest'"),
        (lambda q, f: warp(q, f, padding="reflection"), ValueError, "padding must be one of 'zeros', 'border'"),
        (lambda q, f: compose_flows(f, f.double()), TypeError, "first and second must have one dtype"),
        (lambda q, f: forward_backward_error(f, q), ValueError, "backward must have shape"),
        (lambda q, f: inside_mask(f, 3), ValueError, r"query_size must be \(height, width\), got 3"),
        (lambda q, f: resize_flow(f, (3, 4, 5)), ValueError, r"size must be \(height, width\), got \(3, 4, 5\)"),
        (lambda q, f: resize_flow(f, (3, 0)), ValueError, "width of size must be at least 1, got 0"),
        (lambda q, f: resize_flow(f, (3.0, 4)), TypeError, "height of size must be an integer, got 3.0"),
        (lambda q, f: resize_flow(f, (3, 4), query_size=(3, 4)), ValueError, "must be given together"),
        (lambda q, f: resize_flow(f, (3, 4), mode="area"), ValueError, "mode must be one of"),
        (lambda q, f: invert_flow(f, (0, 4)), ValueError, "height of query_size must be at least 1"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.ones(1, 3, 5, 6), torch.zeros(1, 2, 3, 4))
