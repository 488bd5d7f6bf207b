"""What the checks of the Triton kernels share."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from gocor.ops import select

INTERPRETED = not torch.cuda.is_available()
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")


def let_the_interpreter_index() -> None:
    """Triton's interpreter takes bounds of loops by `int(array)`, which NumPy no longer allows."""
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_tensor_and_index


if INTERPRETED:
    let_the_interpreter_index()


@contextmanager
def kernels_everywhere(monkeypatch: pytest.MonkeyPatch, *, run: bool = True) -> Iterator[None]:
    """Inside, kernels run on every device (in the interpreter), or on none."""
    with monkeypatch.context() as patch:
        patch.setattr(select, "kernels_run_on", lambda device: run)
        yield


@contextmanager
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, fresh memory is NaN, so that an element that nothing wrote shows."""
    with monkeypatch.context() as patch:
        new_empty, empty_like = torch.Tensor.new_empty, torch.empty_like
        patch.setattr(torch.Tensor, "new_empty", lambda *a, **k: new_empty(*a, **k).fill_(float("nan")))
        patch.setattr(torch, "empty_like", lambda *a, **k: empty_like(*a, **k).fill_(float("nan")))
        yield


def perturbed(module: torch.nn.Module, by: float = 0.1) -> torch.nn.Module:
    """A module with random changes to all of its parameters."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return module
