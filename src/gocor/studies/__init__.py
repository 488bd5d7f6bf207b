"""The paper's studies: variants of networks that are trained under one schedule, evaluated and compared."""

from .definitions import STUDIES, Study, Variant
from .report import write_study
from .run import StudyRun, run_study

__all__ = ["STUDIES", "Study", "StudyRun", "Variant", "run_study", "write_study"]
