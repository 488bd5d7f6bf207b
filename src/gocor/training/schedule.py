"""The learning rate, and the weight of the moving average, as functions of progress."""

import math

from .config import TrainConfig

START, END = 1 / 25, 1e-3  # of the highest rate, where a one-cycle schedule begins and ends


def progress(step: int, seconds: float, config: TrainConfig) -> float:
    """Share of the run that is behind us, 0 to 1, after so many steps and seconds of training.

    By time, a run that is too slow for its steps still comes to the end of its schedule. Seconds are those of the whole
    run: after a resume they go on from the checkpoint's.
    """
    share = step / config.steps
    if config.schedule_by == "time" and config.time_limit is not None:
        share = max(share, seconds / (60 * config.time_limit))
    return min(share, 1.0)


def learning_rate(share: float, config: TrainConfig) -> float:
    """The rate at a share of the run."""
    if config.warmup > 0 and share < config.warmup:
        return config.lr * (START + (1 - START) * share / config.warmup)
    if config.schedule == "one-cycle":
        fall = (share - config.warmup) / (1 - config.warmup)
        return config.lr * (END + (1 - END) * (1 + math.cos(math.pi * fall)) / 2)
    if config.schedule == "multi-step":
        return config.lr * config.gamma ** sum(share >= milestone for milestone in config.milestones)
    return config.lr


def ema_weight(step: int, decay: float) -> float:
    """How much of the weights after step `step` (from 0) enters their average: early averages forget faster."""
    return 1 - min(decay, (1 + step) / (10 + step))
