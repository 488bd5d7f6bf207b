"""What holds while a run goes on: signals are noted, and a GPU computes in the way that suits training."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch


@contextmanager
def fast_math(device: torch.device, *, tf32: bool) -> Iterator[None]:
    """Within it, a GPU computes in the way that suits training."""
    precision = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        with algorithm_search(device.type == "cuda"):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


@contextmanager
def algorithm_search(on: bool) -> Iterator[None]:
    """Within it, cuDNN tries its algorithms on every new size, which pays for sizes that come often; or it does not."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def caught_signals() -> Iterator[list[int]]:
    """Within it, the first SIGINT or SIGTERM is put into the list; a second one ends the process as usual."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        old = {}
    try:
        yield caught
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
