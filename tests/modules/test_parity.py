"""The modules compute what the published ones do: recorded values and gradients (float32, TF32 off)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from gocor import GlobalGOCor, LocalGOCor, local_correlation
from gocor.ops import local_correlation_adjoint_reference
from tests.conftest import relative_error

RECORDED = np.load(Path(__file__).parents[1] / "parity" / "modules.npz")
INITIALIZERS = ["zero", "simple", "flexible-simple", "context", "flexible-context"]


def recorded(name: str, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(RECORDED[name]).to(device)


def params(prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): RECORDED[name] for name in RECORDED if name.startswith(prefix)}


def check_gradients(module, prefix: str, reference: torch.Tensor, query: torch.Tensor, device: torch.device) -> None:
    reference, query = reference.requires_grad_(), query.requires_grad_()
    (module(reference, query, iters=3) * recorded(prefix + "grad_out", device)).sum().backward()
    assert relative_error(reference.grad, recorded(prefix + "grad_ref", device)) < 1e-4
    assert relative_error(query.grad, recorded(prefix + "grad_query", device)) < 1e-4
    for name, parameter in module._published_names().items():
        expected = recorded(prefix + "grad_param/" + name, device).flatten()
        if prefix.endswith("/rq/") and "filter_initializer" in name:
            # Recorded with an initialiser that still held the gradient of the case without query term.
            expected = expected - recorded(prefix.replace("/rq/", "/r/") + "grad_param/" + name, device).flatten()
        assert relative_error(parameter.grad.flatten(), expected) < 1e-4, name


def test_local_correlation_and_its_adjoint(device):
    query = recorded("local/query", device)
    assert (
        relative_error(local_correlation(recorded("local/ref", device), query), recorded("local/corr", device)) < 1e-5
    )
    back = local_correlation_adjoint_reference(recorded("local/vol", device), query)
    assert relative_error(back, recorded("local/corr_T", device)) < 1e-5


def test_local_gocor(device):
    module = LocalGOCor().to(device)
    module.load_published(params("local/param/"))
    reference, query = recorded("local/ref", device), recorded("local/query", device)
    for iters in (0, 1, 3, 7):
        assert relative_error(module(reference, query, iters), recorded(f"local/out_iter{iters}", device)) < 1e-5
    check_gradients(module, "local/", reference, query, device)


@pytest.mark.parametrize("form", ["filters", "gram"])
@pytest.mark.parametrize("terms", ["r", "rq"])
@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_global_gocor(initializer, terms, form, device):
    prefix = f"global/{initializer.replace('-', '_')}/{terms}/"
    module = GlobalGOCor(20, initializer=initializer, query_objective=terms == "rq", form=form).to(device)
    module.load_published(params(prefix + "param/"))
    reference, query = recorded("global/ref", device), recorded("global/query", device)
    for iters in (0, 1, 3):
        assert relative_error(module(reference, query, iters), recorded(f"{prefix}out_iter{iters}", device)) < 1e-5
    if prefix + "grad_out" in RECORDED:
        check_gradients(module, prefix, reference, query, device)


def test_parameter_counts_of_the_published_modules():
    assert sum(p.numel() for p in GlobalGOCor().parameters()) == 3504
    assert sum(p.numel() for p in LocalGOCor().parameters()) == 33
