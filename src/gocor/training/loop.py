"""`train` sets a training run up: its folder, processes, signals, network and pairs."""

import signal
from contextlib import nullcontext
from pathlib import Path

from ..utils.errors import InputError
from ..utils.files import check_folder
from ..utils.locks import locked_folder
from ..utils.precision import fast_math
from . import checkpoint
from .build import build_step
from .checkpoint import Progress, load_checkpoint
from .config import TrainConfig
from .distributed import Group, processes
from .export import this_command
from .run import Outcome, Run
from .signals import Interrupted, Signals, caught_signals
from .sources import Sources, open_sources_and_warnings
from .validation import Evaluate, dataset_scores


def train(
    config: TrainConfig,
    *,
    resume: bool = False,
    stop_after: float | None = None,
    sources: Sources | None = None,
    evaluate: Evaluate | None = None,
    quiet: bool = False,
) -> Outcome:
    """Train a network. All files are written to `config.output`.

    Args:
        config: options of the run.
        resume: continue from the checkpoint in the folder if there is one.
        stop_after: minutes after which this part of the run stops, with a checkpoint to resume from.
        sources: training and validation pairs, in place of those that `config` names.
        evaluate: returns scores of the averaged network by name; they are recorded at each validation.
        quiet: print nothing.
    """
    with processes(config.device) as group, caught_signals() as signals, fast_math(group.device, tf32=config.tf32):
        try:
            return _train(config, group, signals, resume, stop_after, sources, evaluate, quiet)
        except Interrupted:
            if not quiet:
                print(f"stopped by {signal.Signals(signals.caught[0]).name} before the first step", flush=True)
            return Outcome(0, float("inf"), finished=False, signal=signals.caught[0])


def _train(
    config: TrainConfig,
    group: Group,
    signals: Signals,
    resume: bool,
    stop_after: float | None,
    sources: Sources | None,
    evaluate: Evaluate | None,
    quiet: bool,
) -> Outcome:
    """`train` with the processes and the signals that it has set up."""
    folder = Path(config.output)
    if group.main:
        check_folder(folder)
    with locked_folder(folder) if group.main else nullcontext(True) as locked:
        with signals.interruptible(enabled=group.world_size == 1):
            has_checkpoint = (folder / checkpoint.FILE).exists()
            if has_checkpoint and not resume:
                raise InputError(
                    f"{folder} holds a run already: --resume continues it, another --output starts a new run"
                )
            if config.batch % group.world_size:
                raise InputError(f"batch must be a multiple of the {group.world_size} processes, got {config.batch}")
            step = build_step(config, group, resumed=has_checkpoint)
            state = load_checkpoint(folder, step) if has_checkpoint else Progress()
            warnings: list[str] = [] if locked else [f"{folder} cannot be locked: let no other run write to it"]
            if sources is None:
                sources, others = open_sources_and_warnings(config, group.device)
                warnings += others
            if evaluate is None and config.eval:
                evaluate = dataset_scores(config)
        run = Run(config, group, step, state, sources, None, evaluate, signals, this_command())
        if group.main:
            run.open_log(resume=resume, quiet=quiet)
        try:
            run.say_start(warnings)
            return run.go(stop_after)
        finally:
            if run.log is not None:
                run.log.close()
