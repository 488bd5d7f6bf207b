"""Sheets of a study: pairs with the flows of all its variants, as in the paper's qualitative ablation."""

from dataclasses import replace
from pathlib import Path

from ..evaluation.sheets import write_sheets
from .run import StudyRun


def write_study_sheets(run: StudyRun, *, count: int) -> list[Path]:
    """Draw `count` evenly spaced pairs of each data set with the first seed of every variant; returns the paths."""
    seed = run.seeds[0]
    rows = [replace(run.matcher(variant, seed), label=variant.label) for variant in run.study.variants]
    return write_sheets(rows, run.benchmarks, run.folder / "sheets", count=count)
