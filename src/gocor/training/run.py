"""A training run in progress: `Run.go` takes its steps."""

import shlex
import signal
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.io import write_image
from ..data.synthetic.batch import PairBatch
from ..models.cards import model_card
from ..utils.files import remove_leftovers, write_bytes_atomically
from ..utils.precision import cudnn_benchmark
from . import checkpoint
from .checkpoint import Progress, save_checkpoint
from .clock import Clock
from .config import TrainConfig, read_commands
from .distributed import Group
from .export import export, run_facts
from .graph import record
from .logs import NO_TENSORBOARD, RunLog, slow_cpu_hint
from .schedule import ema_weight, fraction_done, learning_rate
from .signals import Interrupted, Signals
from .sources import Sources, batches
from .step import TrainStep
from .validation import Evaluate, validate

PICTURES = "pictures"
SLOW_HOURS = 2.0  # a longer run on a CPU prints a hint
# The EMA with the lowest validation error, at the last checkpoint, and at the end:
BEST, LATEST, FINAL = "best.safetensors", "latest.safetensors", "final.safetensors"


@dataclass(frozen=True)
class Outcome:
    """How a part of a run ended.

    Attributes:
        step: steps that were taken in all.
        best: lowest validation error, in pixels.
        finished: whether the run reached its last step or its time limit; otherwise `--resume` continues it.
        signal: the signal that ended it, if one did.
    """

    step: int
    best: float
    finished: bool
    signal: int | None = None


@dataclass
class Run:
    """A run in progress.

    Attributes:
        config: its options.
        group: the processes that take part.
        step: the training step.
        state: steps and seconds so far, and the best validation.
        sources: training and validation pairs.
        log: log of the main process, `None` in the others.
        evaluate: scores of a network by name.
        signals: signals that were caught; the first ends the run.
        command: the command line of this part of the run, and those of earlier parts, one a line.
    """

    config: TrainConfig
    group: Group
    step: TrainStep
    state: Progress
    sources: Sources
    log: RunLog | None
    evaluate: Evaluate | None
    signals: Signals
    command: str

    def open_log(self, *, resume: bool, quiet: bool) -> None:
        """Write `config.toml` and open the log. Files that a killed process left are removed first."""
        config, state, folder = self.config, self.state, Path(self.config.output)
        for place in (folder, folder / PICTURES):
            remove_leftovers(place)
        earlier = read_commands(folder) if resume else []
        commands = list(dict.fromkeys([*earlier, self.command]))
        config.save(folder, commands)
        self.command = "\n".join(commands)
        self.log = RunLog(
            folder,
            step=state.step,
            total=config.steps,
            validated=state.validated == state.step,
            minutes=config.time_limit,
            quiet=quiet,
        )

    def go(self, stop_after: float | None) -> Outcome:
        """Take steps until the run's last step, its time limit, `stop_after` minutes or a signal."""
        config, state = self.config, self.state
        time_limit, stop_limit = _seconds(config.time_limit), _seconds(stop_after)
        clock = Clock(state.seconds, state.step)
        take_step: Callable[[], None] | None = None
        metrics: dict[str, float] = {}
        if self._validation_due():  # a signal interrupted it
            self._validate_and_save(clock, checkpoint_due=False)
        with closing(self._batches()) as pairs:
            while True:
                # All processes use the latest clock and any process's signal, so they save and stop together.
                late = clock.since_checkpoint > 60 * config.checkpoint_minutes
                state.seconds, elapsed, signalled, checkpoint_due = self.group.largest(
                    clock.trained, clock.elapsed, bool(self.signals.caught), late
                )
                finished = state.step >= config.steps or state.seconds >= time_limit
                if finished or signalled or elapsed >= stop_limit:
                    break
                lr = learning_rate(fraction_done(state.step, state.seconds, config), config)
                self.step.load(next(pairs), lr=lr, ema_weight=ema_weight(state.step, config.ema))
                if take_step is None:
                    take_step = self._prepare_step(clock)
                take_step()
                state.step += 1
                if state.step % config.log_every == 0:
                    metrics = self._record_metrics(lr, clock)
                if self.log is not None:
                    self.log.advance(state.step, metrics)
                    self._say_hint(clock)
                self._validate_and_save(clock, bool(checkpoint_due))
        finished = finished and self._validate_last()
        self._save()
        self._say_end(finished)
        return Outcome(state.step, state.best, finished, self.signals.caught[0] if self.signals.caught else None)

    def _batches(self) -> Generator[PairBatch]:
        group = self.group
        options = {"rank": group.rank, "world_size": group.world_size}
        return batches(self.sources.train, self.state.step, self.config.batch, device=group.device, **options)

    def _prepare_step(self, clock: Clock) -> Callable[[], None]:
        """The function that takes a step: a CUDA graph on a GPU with one process, otherwise eager code."""
        if self.config.graph is False or self.group.device.type != "cuda":
            return self.step.compute
        if self.group.world_size > 1:
            self._say("several processes: steps run without a CUDA graph")
            return self.step.compute
        try:
            return record(self.step)
        except RuntimeError as error:
            if self.config.graph:
                raise
            self._say(f"steps run without a CUDA graph: {str(error).splitlines()[0]}")
            return self.step.compute
        finally:
            clock.start_training()

    def _record_metrics(self, lr: float, clock: Clock) -> dict[str, float]:
        metrics = self.step.read() | {
            "lr": lr,
            "pairs_per_second": clock.steps_per_second(self.state.step) * self.config.batch,
            "minutes": clock.trained / 60,
        }
        if self.log is not None:
            self.log.record(self.state.step, "train", metrics)
        return metrics

    def _validate_and_save(self, clock: Clock, checkpoint_due: bool) -> None:
        """Validate and write a checkpoint if this step is due for it. The last step is validated after the loop."""
        validation_due = self._validation_due()
        if validation_due or checkpoint_due or self.state.step % self.config.checkpoint_every == 0:
            with clock.writing_checkpoint():
                if validation_due:
                    self._try_to_validate()
                self._save()

    def _validation_due(self) -> bool:
        step = self.state.step
        return step % self.config.validate_every == 0 and self.state.validated < step < self.config.steps

    def _validate_last(self) -> bool:
        """Validate and export the last network, unless an earlier part did; `False` if a signal interrupted it."""
        exported = self.state.validated == self.state.step and (Path(self.config.output) / FINAL).exists()
        if self.group.largest(self.group.main and not exported)[0]:
            return self._try_to_validate(last=True)
        return True

    def _try_to_validate(self, *, last: bool = False) -> bool:
        """Validate; `False` if a signal interrupted it. Then the state is restored, and a resume validates again."""
        before = dict(vars(self.state))
        try:
            with self.signals.interruptible(enabled=self.group.world_size == 1):
                self._validate(last=last)
        except Interrupted:
            vars(self.state).update(before)
            return False
        return True

    def _validate(self, *, last: bool = False) -> None:
        """Score the averaged network, and export it if it is the best so far or the last."""
        state, network, folder = self.state, self.step.average, Path(self.config.output)
        if self.log is not None:
            self.log.begin_validation(state.step, self.config.validation_pairs)
        metrics, picture = validate(network, self.sources.validation, self.config, self.group)
        state.validated = state.step
        best = metrics["epe"] < state.best
        if best:
            state.best, state.best_step = metrics["epe"], state.step
        if self.log is None:
            return
        self.log.record(state.step, "validation", metrics)
        (folder / PICTURES).mkdir(exist_ok=True)
        write_image(folder / PICTURES / f"step_{state.step:07}.png", picture)
        self.log.picture(state.step, "validation", picture)
        scores: dict[str, float] = {}
        if self.evaluate is not None:
            with cudnn_benchmark(False):  # data sets have many image sizes, with few pairs of each
                scores = self.evaluate(network)
            self.log.record(state.step, "evaluation", scores)
        if best or last:
            self._export(metrics | scores, best=best, last=last)

    def _export(self, metrics: dict[str, float], *, best: bool, last: bool) -> None:
        folder, facts = Path(self.config.output), self._facts(metrics)
        if best:
            row = export(self.step.average, folder / BEST, facts)
            write_bytes_atomically(folder / "card.md", model_card(row, file=BEST, options=facts["recipe"]).encode())
        if last:
            export(self.step.average, folder / FINAL, facts)

    def _facts(self, metrics: dict[str, float]) -> dict[str, Any]:
        return run_facts(
            self.config,
            command=self.command,
            data=self.sources.description,
            step=self.state.step,
            seconds=self.state.seconds,
            metrics=metrics,
            device=self.group.device,
        )

    def _save(self) -> None:
        """Write a checkpoint, and the averaged network as weights that are ready for use."""
        if self.group.main:
            folder = Path(self.config.output)
            save_checkpoint(folder, self.step, self.state)
            export(self.step.average, folder / LATEST, self._facts({}))

    def say_start(self, warnings: list[str]) -> None:
        """Print what is trained on what, and warnings about it."""
        for line in warnings:
            self._say(f"warning: {line}")
        if self.step.origin and not self.state.step:
            self._say(self.step.origin)
        where = f"from step {self.state.step}" if self.state.step else "from the beginning"
        self._say(f"{self.config.model}, {where}, on {self.group.device}: {self.sources.description}")
        height, width = self.config.size
        left = self.config.steps - self.state.step
        self._say(f"{left} steps to take, each on {self.config.batch} pairs of {width}×{height} pixels")
        if self.log is not None and self.log.events is None:
            self._say(NO_TENSORBOARD)

    def _say_end(self, finished: bool) -> None:
        folder, state = self.config.output, self.state
        if finished:
            self._say(f"finished at step {state.step}: validation error {state.best:.3f} px at step {state.best_step}")
            if state.best_step:
                self._say(f"wrote {folder}/{BEST}, its {folder}/card.md, and {folder}/{FINAL}")
        else:
            caught = self.signals.caught
            why = signal.Signals(caught[0]).name if caught else "the time to stop"
            self._say(f"stopped by {why} at step {state.step}, which {folder}/{checkpoint.FILE} holds")
            self._say(f"wrote the weights so far to {folder}/{LATEST}")
            self._say(f"to continue: {shlex.join(['gocor', 'train', '--output', folder, '--resume'])}")

    def _say_hint(self, clock: Clock) -> None:
        """After the first step, print a hint if the run is going to take long on a CPU."""
        if clock.first_step != self.state.step or self.group.device.type != "cpu":
            return
        hours = clock.elapsed * (self.config.steps - self.state.step) / 3600
        if self.config.time_limit is None and hours > SLOW_HOURS:
            self._say(slow_cpu_hint(hours))

    def _say(self, message: str) -> None:
        if self.log is not None:
            self.log.say(message)


def _seconds(minutes: float | None) -> float:
    return float("inf") if minutes is None else 60 * minutes
