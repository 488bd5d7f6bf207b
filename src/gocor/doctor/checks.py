"""Checks that an installation works: weights are intact, fast code agrees with plain code, a pair is matched."""

import csv
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..matching import match
from ..models.zoo import shipped, shipped_file
from ..modules import GlobalGOCor, LocalGOCor
from ..modules.gocor import GOCor
from ..utils.errors import GOCorError, InputError

ASSETS = Path(__file__).parents[1] / "assets"
MAX_FORM_ERROR = 1e-3  # largest difference of two forms in float32, relative to the largest value
MAX_MATCH_ERROR = 3.0  # pixels: median over the true points of the bundled pair
MATCH_SIZE = 640  # pixels: the longer side at which the bundled pair is matched


@dataclass(frozen=True)
class Check:
    """The outcome of one check."""

    name: str
    passed: bool
    detail: str
    seconds: float


def run_checks(device: torch.device) -> Iterator[Check]:
    """Run all checks on a device, each when it is asked for."""
    for name in shipped():
        yield _run(f"weights {name}", partial(_check_weights, name))
    for name, module in _modules().items():
        yield _run(f"forms of {name}", partial(_check_forms, module, device))
    yield _run("match of the bundled pair", partial(_check_match, device))


def true_points() -> np.ndarray:
    """True matches of the bundled pair: rows x, y, x′, y′."""
    with (ASSETS / "truth.csv").open(newline="", encoding="utf-8") as file:
        return np.array([[float(value) for value in row] for row in list(csv.reader(file))[1:]])


def _run(name: str, check: Callable[[], str]) -> Check:
    """Run one check; an error is its detail. Bugs of any kind count, since a check is there to find them."""
    begin = time.perf_counter()
    try:
        detail, passed = check(), True
    except Exception as error:
        detail, passed = str(error) or type(error).__name__, False
        if not isinstance(error, (GOCorError, OSError)):
            detail = f"{type(error).__name__}: {detail}"
    return Check(name, passed, " ".join(detail.split()), round(time.perf_counter() - begin, 2))


def _check_weights(name: str) -> str:
    path = shipped_file(name)
    return f"{path.stat().st_size / 2**20:.1f} MiB, SHA-256 {shipped()[name].sha256[:16]}…"


def _modules() -> dict[str, GOCor]:
    torch_state = torch.random.get_rng_state()
    try:
        return {"local GOCor": LocalGOCor(radius=3), "global GOCor": GlobalGOCor(16, query_objective=False)}
    finally:
        torch.random.set_rng_state(torch_state)


def _check_forms(module: GOCor, device: torch.device) -> str:
    """Compare every form that can run, values and gradients, with the plain one."""
    generator = torch.Generator().manual_seed(0)
    pair = [torch.randn(1, 16, 9, 12, generator=generator).to(device) for _ in range(2)]
    module = module.to(device)
    module.form = "filters"
    plain = _volume(module, pair, gradients=False), *_volume_and_gradients(module, pair)
    compared, worst = [], 0.0
    for form in module.requests:
        if form in ("auto", "filters"):
            continue
        module.form = form
        for gradients in (False, True):
            try:
                chosen = _select(module, pair, gradients=gradients)
            except InputError:  # this form needs another device, or has no gradients
                continue
            found = _volume_and_gradients(module, pair) if gradients else (_volume(module, pair, gradients=False),)
            expected = plain[1:] if gradients else plain[:1]
            worst = max(worst, *(_difference(a, b) for a, b in zip(found, expected, strict=True)))
            compared.append(f"{chosen}{' with gradients' if gradients else ''}")
    if worst > MAX_FORM_ERROR:
        raise InputError(
            f"{', '.join(compared)}: they differ from filters by {worst:.1e}, at most {MAX_FORM_ERROR:.0e}"
        )
    return f"{', '.join(dict.fromkeys(compared)) or 'filters alone'}: within {worst:.0e} of the plain form"


def _leaves(pair: list[Tensor], gradients: bool) -> list[Tensor]:
    return [features.clone().requires_grad_(gradients) for features in pair]


def _select(module: GOCor, pair: list[Tensor], *, gradients: bool) -> str:
    with torch.set_grad_enabled(gradients):
        reference, query = _leaves(pair, gradients)
        return module.selected_form(reference, query).name


def _volume(module: GOCor, pair: list[Tensor], *, gradients: bool) -> Tensor:
    with torch.set_grad_enabled(gradients):
        return module(*_leaves(pair, gradients))


def _volume_and_gradients(module: GOCor, pair: list[Tensor]) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        leaves = _leaves(pair, True)
        volume = module(*leaves)
        return volume.detach(), *torch.autograd.grad(volume.square().sum(), leaves)


def _difference(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest expected value."""
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12))


def _check_match(device: torch.device) -> str:
    points = true_points()
    result = match(ASSETS / "reference.jpg", ASSETS / "query.jpg", device=device, max_size=MATCH_SIZE)
    x, y = points[:, :2].round().astype(int).T
    found = points[:, :2] + result.flow.numpy()[:, y, x].T
    error = float(np.median(np.linalg.norm(found - points[:, 2:], axis=1)))
    if not error <= MAX_MATCH_ERROR:
        raise InputError(
            f"{result.model} is wrong by {error:.1f} pixels (median), at most {MAX_MATCH_ERROR:g} expected"
        )
    return f"{result.model} on {device}, median error {error:.2f} pixels"
