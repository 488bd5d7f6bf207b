"""The paper's method: GOCor modules and the plain correlation layers that they replace."""

from .correlation import GlobalFeatureCorrelation, LocalFeatureCorrelation
from .global_gocor import GlobalGOCor
from .gocor import Explanation
from .local_gocor import LocalGOCor

__all__ = ["Explanation", "GlobalFeatureCorrelation", "GlobalGOCor", "LocalFeatureCorrelation", "LocalGOCor"]
