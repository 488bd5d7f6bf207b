"""The learning rate and the weight of the EMA update, as functions of a run's progress."""

import math

from .config import TrainConfig

# Learning rates at the start of the warm-up and at the end of a one-cycle schedule, relative to the peak.
START, END = 1 / 25, 1e-3


def fraction_done(step: int, seconds: float, config: TrainConfig) -> float:
    """Fraction of the run that is done, 0 to 1, after a number of steps and seconds of training.

    With `schedule_by = "time"`, a run that is too slow to take all its steps still completes its schedule. Seconds are
    those of the whole run, before a resume too.
    """
    fraction = step / config.steps
    if config.schedule_by == "time" and config.time_limit is not None:
        fraction = max(fraction, seconds / (60 * config.time_limit))
    return min(fraction, 1.0)


def learning_rate(fraction: float, config: TrainConfig) -> float:
    """The learning rate when a fraction of the run is done."""
    if config.warmup > 0 and fraction < config.warmup:
        return config.lr * (START + (1 - START) * fraction / config.warmup)
    if config.schedule == "one-cycle":
        decay = (fraction - config.warmup) / (1 - config.warmup)
        return config.lr * (END + (1 - END) * (1 + math.cos(math.pi * decay)) / 2)
    if config.schedule == "multi-step":
        return config.lr * config.gamma ** sum(fraction >= milestone for milestone in config.milestones)
    return config.lr


def ema_weight(step: int, decay: float) -> float:
    """Weight of the new values in the EMA update after step `step`, counted from 0. It is larger in early steps."""
    return 1 - min(decay, (1 + step) / (10 + step))
