"""GOCor in ptlflow: a model of its class.

In a script, beside this file:

    from ptlflow.utils.io_adapter import IOAdapter
    from ptlflow_model import GOCor

    model = GOCor().eval()
    adapter = IOAdapter(output_stride=model.output_stride, input_size=images[0].shape[:2])
    flow = model(adapter.prepare_inputs(images))["flows"]  # images as `cv2.imread` gives them; flow (1, 1, 2, H, W)

In a package of your own the class registers itself: once the module is imported, `ptlflow.get_model("GOCor")` finds it.
ptlflow's scripts find it if the package is `ptlflow/models/gocor`, with `from .ptlflow_model import *` in its
`__init__.py`, and `ptlflow/models/__init__.py` has `from .gocor import *`.

Tested with ptlflow 0.4.2.
"""

from typing import Any

from torch import Tensor, nn

import gocor

try:
    from ptlflow.models.base_model.base_model import BaseModel
    from ptlflow.utils.registry import register_model
except ImportError:

    class BaseModel(nn.Module):  # type: ignore[no-redef]
        """The part of ptlflow's base class that a model builds on, for use without ptlflow."""

        def __init__(self, output_stride: int, **kwargs: Any) -> None:
            super().__init__()
            self.output_stride = output_stride

    def register_model(model: type[BaseModel]) -> type[BaseModel]:
        """Leave the class as it is."""
        return model


def _registered(model: type[BaseModel]) -> type[BaseModel]:
    """Register the class if its module is in a package, as ptlflow's registry demands."""
    return register_model(model) if "." in model.__module__ else model


@_registered
class GOCor(BaseModel):
    """A network of gocor between two frames.

    Args:
        model: name of a network.
        min_size: see `gocor.match`; `None` for the network's own.
        max_size: likewise; `None` for no bound.
        **kwargs: of ptlflow's base class, such as `lr`.
    """

    def __init__(
        self,
        model: str = "recurrent-gocor",
        min_size: int | None = None,
        max_size: int | None = 1664,
        **kwargs: Any,
    ) -> None:
        super().__init__(output_stride=1, **kwargs)  # networks of gocor take images of any size
        self.network = gocor.load_model(model, device="cpu")
        self.sizes = {"min_size": min_size, "max_size": max_size}

    def forward(self, inputs: dict[str, Any]) -> dict[str, Tensor]:
        """`images` `(B, 2, 3, H, W)`, BGR in [0, 1] → `flows` `(B, 1, 2, H, W)`.

        Networks that learn them also give `confs`, the confidence, and `occs`, 1 − visibility, `(B, 1, 1, H, W)`.
        """
        images = 255 * inputs["images"].flip(2)
        found = self.network.predict(images[:, 0], images[:, 1], **self.sizes)
        outputs = {"flows": found.flow.unsqueeze(1)}
        if found.confidence is not None and found.visibility is not None:
            outputs |= {"confs": found.confidence.unsqueeze(1), "occs": (1 - found.visibility).unsqueeze(1)}
        return outputs
