"""Options and helpers that every test can use."""

import os
import sys
from functools import partial
from itertools import islice

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device that the operator and module tests run on")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every worker begin with its share of the long tests, so that none of them runs alone at the end.

    `--dist worksteal` gives each worker an equal number of consecutive tests to begin with.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.get_closest_marker("long")]
    others = iter([item for item in items if not item.get_closest_marker("long")])
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        share = long[worker * len(long) // workers : (worker + 1) * len(long) // workers]
        ordered += share + list(islice(others, len(items) // workers - len(share)))
    items[:] = [*ordered, *others]


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(autouse=True)
def _reproducible() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the tests' tensors are small: threads would only wait for each other
    torch.backends.cudnn.allow_tf32 = False  # what is compared was computed in float32
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # it compiles a function eight times at most, those of other tests included


@pytest.fixture
def quick_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alignment without further starts and looks, which take most of the time if nothing agrees."""
    from gocor.matching import alignment, api

    settings = alignment.AlignmentSettings(close_support=0, support_without_shifts=0, support_without_turns=0, looks=0)
    monkeypatch.setattr(api, "match_wide_baseline", partial(alignment.match_wide_baseline, alignment=settings))


def results_of_flat_images(module: torch.nn.Module, value: float, size: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """Volume, gradients of both feature maps and of all parameters, where every feature of 8 channels is the same."""
    like = next(module.parameters())
    leaves = [torch.full((1, 8, *size), value, dtype=like.dtype, device=like.device) for _ in range(2)]
    volume = module(*(leaf.requires_grad_() for leaf in leaves))
    volume.mean().backward()
    return volume, *(leaf.grad for leaf in leaves), torch.cat([p.grad.flatten() for p in module.parameters()])


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """‖ours − theirs‖ / ‖theirs‖, in float64; the plain norm of ours where theirs is zero."""
    ours, theirs = ours.detach().cpu().double(), theirs.detach().cpu().double()
    return ((ours - theirs).norm() / theirs.norm().clamp(min=1e-30)).item() if theirs.any() else ours.norm().item()
