import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

EXAMPLE = Path(__file__).parents[1] / "examples" / "plug_into_your_network.py"


@pytest.fixture
def example() -> ModuleType:
    """The example, loaded anew for each test so that its constants can be changed."""
    spec = importlib.util.spec_from_file_location("plug_into_your_network", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def still(example: ModuleType) -> ModuleType:
    """The example without photometric differences."""
    example.GAIN = example.OFFSET = example.NOISE = 0.0
    return example


def pairs_of(example: ModuleType, batch: int = 4, seed: int = 0) -> Any:
    return example.make_pairs(batch, torch.Generator().manual_seed(seed))


def warp(query: Tensor, flow: Tensor) -> Tensor:
    """The query `(B, 1, S, S)` at p + flow(p)."""
    axis = torch.arange(query.shape[-1])
    target = torch.stack(torch.meshgrid(axis, axis, indexing="xy")) + flow  # (B, 2, S, S)
    grid = (2 * target + 1) / query.shape[-1] - 1
    return F.grid_sample(query, grid.permute(0, 2, 3, 1), mode="bicubic", align_corners=False)


def fix_uniform(example: ModuleType, shift: tuple[float, float]) -> None:
    """Nothing is drawn from the uniform distribution but the shift `(x, y)` in pixels."""

    def uniform(generator: Generator, *shape: int) -> Tensor:
        is_shift = shape[1:] == (1, 2)
        return torch.tensor(shift).expand(shape) / example.MAX_SHIFT if is_shift else torch.zeros(shape)

    example.uniform = uniform


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]
        ),
    ],
)
def test_main_runs_and_reports_both_layers(
    example: ModuleType, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    example.VALIDATION_BATCHES = 1
    results = example.main(["--steps", "3", "--iters", "2", "--seed", "1", "--device", device])
    assert list(results) == ["correlation", "GOCor"]
    for error, share in results.values():
        assert math.isfinite(error)
        assert 0 <= share <= 1
    header, *rows = capsys.readouterr().out.strip().splitlines()
    assert header.split()[:2] == ["layer", "parameters"]
    assert [row.split()[0] for row in rows] == list(results)


def test_main_is_deterministic(example: ModuleType) -> None:
    example.VALIDATION_BATCHES = 1
    first, second = (example.main(["--steps", "2"]) for _ in range(2))
    assert first == second
    assert first != example.main(["--steps", "2", "--seed", "1"])


def test_training_lowers_the_error(example: ModuleType) -> None:
    example.VALIDATION_BATCHES = 4
    torch.manual_seed(0)
    net = example.build_networks(iters=3)["GOCor"]
    before, _ = example.validate(net, seed=0, device="cpu")
    example.train(net, steps=20, seed=0, device="cpu")
    after, _ = example.validate(net, seed=0, device="cpu")
    assert after < 0.9 * before


def test_networks_differ_in_the_correlation_layer_alone(example: ModuleType) -> None:
    plain, gocor = example.build_networks(iters=3).values()
    shared, all_of_gocor = plain.state_dict(), gocor.state_dict()
    assert not any(name.startswith("correlation.") for name in shared)
    assert all(name.startswith("correlation.") for name in all_of_gocor.keys() - shared.keys())
    for name, value in shared.items():
        torch.testing.assert_close(all_of_gocor[name], value, rtol=0, atol=0)


def test_networks_agree_where_nothing_is_optimised(example: ModuleType) -> None:
    plain, gocor = example.build_networks(iters=0).values()
    reference, query, *_ = pairs_of(example)
    torch.testing.assert_close(gocor(reference, query), plain(reference, query), rtol=1e-3, atol=1e-4)


def test_query_warped_by_the_flow_is_the_reference(still: ModuleType) -> None:
    reference, query, flow, valid = pairs_of(still, batch=16)

    def error(candidate: Tensor) -> float:
        return (warp(query, candidate) - reference)[valid].square().mean().sqrt().item()

    contrast = reference.std().item()
    assert error(flow) < 0.05 * contrast  # what bicubic interpolation leaves
    for wrong in (-flow, flow.flip(1), torch.zeros_like(flow)):
        assert error(wrong) > 0.5 * contrast


def test_warped_query_differs_by_the_noise_alone(still: ModuleType) -> None:
    still.NOISE = 0.05
    fix_uniform(still, shift=(4.0, 0.0))  # whole pixels: interpolation does not smooth the noise
    reference, query, flow, valid = pairs_of(still, batch=16)
    error = (warp(query, flow) - reference)[valid].std().item()
    assert error == pytest.approx(0.05 * math.sqrt(2), rel=0.05)


def test_flow_points_right_and_down_from_reference_to_query(still: ModuleType) -> None:
    fix_uniform(still, shift=(3.0, -2.0))  # to the right and up
    reference, query, flow, valid = pairs_of(still)
    torch.testing.assert_close(flow, torch.tensor([3.0, -2.0]).view(1, 2, 1, 1).expand_as(flow))
    torch.testing.assert_close(query[..., :-2, 3:], reference[..., 2:, :-3], rtol=0, atol=1e-4)
    assert valid[..., 2:, :-3].all()
    assert valid.sum() == valid[..., 2:, :-3].numel()


def test_texture_repeats_with_small_differences(still: ModuleType) -> None:
    fix_uniform(still, shift=(0.0, 0.0))
    image = pairs_of(still, batch=16)[0]
    period = round(still.TILE * still.NODE_SPACING)

    def similarity(lag: int) -> float:
        return torch.corrcoef(torch.stack([image[..., :-lag].flatten(), image[..., lag:].flatten()]))[0, 1].item()

    assert 0.85 < similarity(period) < 0.98
    assert abs(similarity(period // 2)) < 0.5


def test_errors_count_valid_cells_only(example: ModuleType) -> None:
    pairs = pairs_of(example)
    truth = F.avg_pool2d(pairs.flow, example.STRIDE)
    cells = F.avg_pool2d(pairs.valid.float(), example.STRIDE) == 1
    off = truth + torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)
    errors = example.endpoint_errors(torch.where(cells, off, 1e9), pairs)
    assert errors.shape == (int(cells.sum()),)
    torch.testing.assert_close(errors, torch.full_like(errors, 5.0))
