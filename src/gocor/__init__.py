"""GOCor: globally optimised correspondence volumes for image matching and optical flow."""

from ._version import __version__
from .matching import MatchResult, match
from .models import list_models, load_model
from .modules import GlobalFeatureCorrelation, GlobalGOCor, LocalFeatureCorrelation, LocalGOCor
from .ops.correlation import global_correlation, local_correlation

__all__ = [
    "GlobalFeatureCorrelation",
    "GlobalGOCor",
    "LocalFeatureCorrelation",
    "LocalGOCor",
    "MatchResult",
    "__version__",
    "global_correlation",
    "list_models",
    "load_model",
    "local_correlation",
    "match",
]
