"""GOCor: globally optimised correspondence volumes for image matching and optical flow.

Names are imported on first use (PEP 562), so that `gocor --help` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .utils.errors import GOCorError

if TYPE_CHECKING:
    from .matching import MatchResult, match
    from .models import list_models, load_model
    from .modules import GlobalFeatureCorrelation, GlobalGOCor, LocalFeatureCorrelation, LocalGOCor
    from .ops.correlation import global_correlation, local_correlation

__all__ = [
    "GOCorError",
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

_SUBPACKAGES = ("data", "matching", "models", "modules", "ops", "viz")
_EXPORTS = {
    "matching": ("MatchResult", "match"),
    "models": ("list_models", "load_model"),
    "modules": ("GlobalFeatureCorrelation", "GlobalGOCor", "LocalFeatureCorrelation", "LocalGOCor"),
    "ops.correlation": ("global_correlation", "local_correlation"),
}

if not TYPE_CHECKING:  # type checkers would take any name for defined

    def __getattr__(name: str) -> Any:
        """Import a public name or a subpackage when it is first used."""
        if name in _SUBPACKAGES:
            return import_module(f".{name}", __name__)
        for module, names in _EXPORTS.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})
