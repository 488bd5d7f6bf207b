"""GOCor: globally optimised correspondence volumes for image matching and optical flow."""

from ._version import __version__
from .modules import GlobalFeatureCorrelation, GlobalGOCor, LocalFeatureCorrelation, LocalGOCor
from .ops import global_correlation, local_correlation

__all__ = [
    "GlobalFeatureCorrelation",
    "GlobalGOCor",
    "LocalFeatureCorrelation",
    "LocalGOCor",
    "__version__",
    "global_correlation",
    "local_correlation",
]
