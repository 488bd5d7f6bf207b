"""The training loop."""

import copy
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ..data.synthetic.sources import SkippedFilesWarning
from ..models.network import MatchingNetwork
from ..models.weights import UntrainedWarning, load_model
from ..utils.files import write_bytes_atomically
from ..utils.precision import algorithm_search, fast_math
from . import checkpoint
from .card import export, make_card, write_card
from .checkpoint import Progress, load_checkpoint, remove_leftovers, save_checkpoint, start_from
from .config import TrainConfig
from .distributed import Group, processes
from .graph import record
from .logs import RunLog
from .schedule import ema_weight, learning_rate, progress
from .signals import caught_signals
from .sources import Sources, batches, open_sources
from .step import TrainStep, checkpoint_activations, uses_channels_last
from .validation import Evaluate, Picture, dataset_scores, validate

FINAL = "final.safetensors"  # the averaged network at the end, whatever its validation error


@dataclass(frozen=True)
class Outcome:
    """How a part of a run ended.

    Attributes:
        step: steps taken in all.
        best: lowest validation error, in pixels.
        finished: whether the run came to its end, by steps or by time; otherwise `--resume` continues it.
        signal: the signal that ended it, if one did.
    """

    step: int
    best: float
    finished: bool
    signal: int | None = None


def train(
    config: TrainConfig,
    *,
    resume: bool = False,
    stop_after: float | None = None,
    sources: Sources | None = None,
    evaluate: Evaluate | None = None,
    quiet: bool = False,
) -> Outcome:
    """Train a network; everything is written to `config.output`.

    Args:
        config: options of the run.
        resume: go on from the folder's checkpoint, or begin where there is none yet.
        stop_after: minutes after which this part of the run stops, with a checkpoint to resume from.
        sources: pairs of one's own, in place of those that `config` names.
        evaluate: scores of the averaged network, recorded at each validation.
        quiet: print nothing.
    """
    folder = Path(config.output)
    if not resume and (folder / checkpoint.FILE).exists():
        raise ValueError(f"{folder} holds a run already: --resume continues it, another --output starts anew")
    with processes(config.device) as group, caught_signals() as caught, fast_math(group.device, tf32=config.tf32):
        if config.batch % group.world_size:
            raise ValueError(f"batch must be a multiple of the {group.world_size} processes, got {config.batch}")
        step = _build(config, group)
        state = load_checkpoint(folder, step) if (folder / checkpoint.FILE).exists() else Progress()
        skipped: list[str] = []
        if sources is None:
            sources, skipped = _opened(config, group.device)
        if evaluate is None and config.eval:
            evaluate = dataset_scores(config)
        log = None
        if group.main:
            folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(folder)
            config.save(folder)
            log = RunLog(folder, step=state.step, total=config.steps, minutes=config.time_limit, quiet=quiet)
            where = f"from step {state.step}" if state.step else "from the beginning"
            for line in skipped:
                log.say(f"warning: {line}")
            log.say(f"{config.model}, {where}, on {group.device}: {sources.description}")
        run = Run(config, group, step, state, sources, log, evaluate)
        try:
            return run.go(stop_after, caught)
        finally:
            if log is not None:
                log.close()


@dataclass
class Run:
    """A run in progress: what the loop's parts share."""

    config: TrainConfig
    group: Group
    step: TrainStep
    state: Progress
    sources: Sources
    log: RunLog | None
    evaluate: Evaluate | None

    def go(self, stop_after: float | None, caught: list[int]) -> Outcome:
        """Take steps until the run's end, its time limit, `stop_after` minutes or a signal."""
        config, state, group = self.config, self.state, self.group
        limit = 60 * config.time_limit if config.time_limit is not None else float("inf")
        stop = 60 * stop_after if stop_after is not None else float("inf")
        before, began = state.seconds, time.monotonic()
        started = saved = began
        take, record_first = self.step.compute, self._use_graph()
        latest: dict[str, float] = {}
        pairs = batches(
            self.sources.train,
            state.step,
            config.batch,
            rank=group.rank,
            world_size=group.world_size,
            device=group.device,
        )
        marked, timed = state.step, started  # where the rate of the last record was taken from
        while True:
            # All processes go by one clock and stop together.
            now = time.monotonic()
            late = now - saved > 60 * config.checkpoint_minutes
            trained, here, ended, due = group.largest(now - started, now - began, float(bool(caught)), float(late))
            state.seconds = before + trained
            finished = state.step >= config.steps or state.seconds >= limit
            if finished or ended or here >= stop:
                break
            lr = learning_rate(progress(state.step, state.seconds, config), config)
            self.step.load(next(pairs), lr=lr, ema_weight=ema_weight(state.step, config.ema))
            if record_first:
                take, record_first = self._recorded(), False
                lost = time.monotonic() - now  # kernels were compiled, nothing was trained
                started, timed = started + lost, timed + lost
            take()
            state.step += 1
            if state.step % config.log_every == 0:
                latest = self.step.read()
                now = time.monotonic()
                latest |= {"lr": lr, "pairs_per_second": (state.step - marked) * config.batch / (now - timed)}
                latest["minutes"] = (before + now - started) / 60
                marked, timed = state.step, now
                if self.log is not None:
                    self.log.record(state.step, "train", latest)
            if self.log is not None:
                self.log.advance(state.step, latest)
            paused = time.monotonic()
            validated = state.step % config.validate_every == 0 and state.step < config.steps
            if validated:
                self._validate()
            if validated or due or state.step % config.checkpoint_every == 0:
                self._save()
                saved = time.monotonic()
                timed += saved - paused
        pairs.close()
        missing = group.main and (state.validated < state.step or not (Path(config.output) / FINAL).exists())
        if finished and group.largest(float(missing))[0]:
            self._validate(last=True)
        self._save()
        self._say_end(finished, caught)
        return Outcome(state.step, state.best, finished, caught[0] if caught else None)

    def _use_graph(self) -> bool:
        if self.config.graph is False or self.group.device.type != "cuda":
            return False
        if self.group.world_size > 1:
            self._say("several processes: steps run one kernel at a time, not as a CUDA graph")
            return False
        return True

    def _recorded(self) -> Callable[[], None]:
        try:
            return record(self.step)
        except RuntimeError as error:
            if self.config.graph:
                raise
            self._say(f"no CUDA graph, steps run one kernel at a time: {str(error).splitlines()[0]}")
            return self.step.compute

    def _save(self) -> None:
        if self.group.main:
            save_checkpoint(Path(self.config.output), self.step, self.state)

    def _validate(self, *, last: bool = False) -> None:
        """Score the averaged network; keep it if it is the best so far, or the last."""
        config, state = self.config, self.state
        network = self.step.average
        metrics, picture = validate(network, self.sources.validation, config, self.group)
        state.validated = state.step
        better = metrics["epe"] < state.best
        if better:
            state.best, state.best_step = metrics["epe"], state.step
        if self.log is None:
            return
        self.log.record(state.step, "validation", metrics)
        folder = Path(config.output)
        (folder / "pictures").mkdir(exist_ok=True)
        png = _png(picture)
        write_bytes_atomically(folder / "pictures" / f"step_{state.step:07}.png", png)
        self.log.picture(state.step, "validation", png, (picture.shape[0], picture.shape[1]))
        scores: dict[str, float] = {}
        if self.evaluate is not None:
            with algorithm_search(False):  # images of many sizes, a few of each
                scores = self.evaluate(network)
            self.log.record(state.step, "evaluation", scores)
        if not better and not last:
            return
        card = make_card(
            config,
            data=self.sources.description,
            step=state.step,
            seconds=state.seconds,
            metrics=metrics | scores,
            device=self.group.device,
        )
        if better:
            export(network, folder / "best.safetensors", card)
            write_card(folder / "card.md", network, card)
        if last:
            export(network, folder / FINAL, card)

    def _say_end(self, finished: bool, caught: list[int]) -> None:
        folder, state = self.config.output, self.state
        if finished:
            self._say(f"finished at step {state.step}: validation error {state.best:.3f} px at step {state.best_step}")
            if state.best_step:
                self._say(f"wrote {folder}/best.safetensors, its {folder}/card.md, and {folder}/{FINAL}")
        else:
            why = signal.Signals(caught[0]).name if caught else "the time to stop"
            self._say(f"stopped by {why} at step {state.step}; --resume continues from {folder}/{checkpoint.FILE}")

    def _say(self, message: str) -> None:
        if self.log is not None:
            self.log.say(message)


def _build(config: TrainConfig, group: Group) -> TrainStep:
    """The network, its average and the step that trains it."""
    torch.manual_seed(config.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrainedWarning)
        network = load_model(config.model, None, device="cpu")
        if config.init is not None:
            start_from(network, config.init)
    if group.world_size > 1 and group.device.type == "cuda":
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    network.to(group.device)
    group.same_start(network)
    if uses_channels_last(config, group.device):
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = _average_of(network)
    if config.activation_checkpointing:
        checkpoint_activations(network)
    shape = (config.batch // group.world_size, *config.size)
    return TrainStep(network.train(), average, config, group, shape)


def _opened(config: TrainConfig, device: torch.device) -> tuple[Sources, list[str]]:
    """The pairs, and a line for each warning about their files."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SkippedFilesWarning)
        sources = open_sources(config, device)
    for warning in caught:
        if not issubclass(warning.category, SkippedFilesWarning):
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    return sources, [str(w.message) for w in caught if issubclass(w.category, SkippedFilesWarning)]


def _average_of(network: MatchingNetwork) -> MatchingNetwork:
    """A copy to hold the moving average; what is not trained is shared with the network."""
    frozen = {id(p): p for p in network.parameters() if not p.requires_grad}
    return copy.deepcopy(network, frozen).requires_grad_(False).eval()


def _png(picture: Picture) -> bytes:
    import cv2

    return bytes(cv2.imencode(".png", picture[..., ::-1])[1])
