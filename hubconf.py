"""Entry point of `torch.hub`: the networks by name, with the weights that ship. Nothing else is downloaded.

network = torch.hub.load("path/to/gocor", "gocor", name="glunet-gocor", source="local")
flow = network(reference, query)  # RGB (B, 3, H, W) in [0, 255] → (B, 2, H, W)
"""

import sys
from pathlib import Path
from typing import Any

dependencies = ["torch", "numpy", "cv2", "safetensors"]

_SOURCE = str(Path(__file__).parent / "src")


def gocor(name: str = "glunet-gocor", **options: Any) -> Any:
    """A network in evaluation mode.

    Args:
        name: one of `gocor.list_models()`.
        **options: of `gocor.load_model`: `weights`, `device`, `dtype`, `fast`.
    """
    try:
        from gocor import load_model
    except ImportError:  # a checkout that is not installed
        sys.path.append(_SOURCE)
        from gocor import load_model

    return load_model(name, **options)
