"""The learnt functions y′, v⁺ and m of GOCor modules, as curves and as heat maps, and their scalars."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..models.network import MatchingNetwork
from ..modules.basis import by_pair, displacement_distances, local_distances
from ..modules.global_gocor import GlobalGOCor
from ..modules.gocor import GOCor
from ..modules.local_gocor import LocalGOCor
from ..modules.objective import QuadraticObjective, ReferenceObjective, TargetMaps
from ..utils.arrays import Array
from ..utils.errors import InputError
from .plots import COLOURS, figure, png

MAX_DISTANCE = 5.5  # Largest distance of the curves in feature pixels; the last knot of the paper's modules is at 4.5.
GLOBAL_SIDE, GLOBAL_PLACE = 16, 7  # Location (7, 7) of a 16×16 map, as in the paper's figure.
NAMES = ("target", "weight", "mask")
CURVE_TITLES = {"target": "y′, target confidence", "weight": "v⁺, weight", "mask": "m = v⁻/v⁺, sigmoid included"}
LEARNT, START = COLOURS[1], COLOURS[2]


@dataclass(frozen=True)
class Layer:
    """The learnt functions of one module, and their initial values.

    Attributes:
        name: name of the module in its network.
        kind: `"global"` or `"local"`.
        distance: distances `(N,)` in feature pixels.
        curves: y′, v⁺ and m at these distances, by name, `(N,)`.
        start: the same before training.
        maps: y = v⁺y′, v⁺ and v⁻ = v⁺m around one filter, by name, `(h, w)`.
        start_maps: the same before training.
        place: the filter's own pixel `(x, y)` in the maps.
        scalars: regularisation, step factor, and mean and standard deviation of the initialiser's parameters.
    """

    name: str
    kind: str
    distance: Array
    curves: dict[str, Array]
    start: dict[str, Array]
    maps: dict[str, Array]
    start_maps: dict[str, Array]
    place: tuple[int, int]
    scalars: dict[str, float]


def inspect_network(network: MatchingNetwork) -> list[Layer]:
    """Every GOCor module of a network, coarse to fine; a shared module is listed once."""
    layers = [_layer(name, module) for name, module in network.named_modules() if isinstance(module, GOCor)]
    if not layers:
        raise InputError(f"{network.name or 'the network'} has no GOCor module to inspect")
    return layers


def draw_layer(layer: Layer) -> bytes:
    """Draw the curves above (learnt and initial) and the heat maps below (initial, then learnt), as PNG."""
    made, panels = figure(6, 2, 15.5, 6.0)
    grid = panels[0, 0].get_gridspec()
    for panel in panels[0]:
        panel.remove()
    for column, name in enumerate(NAMES):
        panel = made.add_subplot(grid[0, 2 * column : 2 * column + 2])
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.plot(layer.distance, layer.start[name], color=START, linewidth=1.8, label="start")
        panel.plot(layer.distance, layer.curves[name], color=LEARNT, linewidth=1.8, linestyle="--", label="now")
        panel.set(title=CURVE_TITLES[name], xlim=(0, MAX_DISTANCE), xlabel="distance [feature px]")
        values = np.concatenate([layer.start[name], layer.curves[name]])
        margin = 0.05 * max(values.max(), 1.0)
        panel.set_ylim(min(0.0, values.min()) - margin, max(values.max(), 1.0) + margin)
        if column == 0:
            panel.legend(frameon=False)
    keys = list(layer.maps)
    for index, panel in enumerate(panels[1]):
        key, learnt = keys[index // 2], index % 2 == 1
        values = (layer.maps if learnt else layer.start_maps)[key]
        both = np.concatenate([layer.maps[key].ravel(), layer.start_maps[key].ravel()])
        low, high = min(0.0, both.min()), max(both.max(), 1e-9)
        image = panel.imshow(values, cmap="viridis", vmin=low, vmax=high, interpolation="nearest")
        panel.plot(*layer.place, "+", color="#d62728", markersize=9, markeredgewidth=1.6)
        panel.set(title=f"{key}, {'now' if learnt else 'start'}", xticks=[], yticks=[])
        panel.grid(False)
        panel.spines[:].set_visible(False)
        made.colorbar(image, ax=panel, fraction=0.05, pad=0.03)
    place = f"the filter at {layer.place} of {values.shape[1]}×{values.shape[0]}"
    made.suptitle(f"{layer.name}: {layer.kind} GOCor; below, targets and weights of {place}", fontsize=12)
    return png(made)


def describe_layer(layer: Layer) -> dict[str, Any]:
    """Scalars of a layer and samples of its curves at twelve distances, for JSON."""
    steps = np.linspace(0, len(layer.distance) - 1, 12).round().astype(int)
    return {
        "name": layer.name,
        "kind": layer.kind,
        **layer.scalars,
        "distance": layer.distance[steps].round(4).tolist(),
        **{name: layer.curves[name][steps].round(6).tolist() for name in NAMES},
    }


@torch.no_grad()
def _layer(name: str, module: GOCor) -> Layer:
    objective = module.objective
    fresh: ReferenceObjective | QuadraticObjective = (
        ReferenceObjective(knots=objective.knots, spacing=objective.spacing, eta=objective.eta)
        if isinstance(objective, ReferenceObjective)
        else QuadraticObjective()
    )
    device = module.log_step_factor.device
    fresh = fresh.to(device)
    distance = torch.linspace(0, MAX_DISTANCE, 331, dtype=torch.float64, device=device)
    if isinstance(module, LocalGOCor):
        side = 2 * module.radius + 1
        around = local_distances(module.radius, torch.float64, device).view(side, side)
        place = (module.radius, module.radius)
    else:
        side = GLOBAL_SIDE
        pairs = displacement_distances(side, side, torch.float64, device)
        around = by_pair(pairs, side, side)[GLOBAL_PLACE * side + GLOBAL_PLACE]
        place = (GLOBAL_PLACE, GLOBAL_PLACE)
    scalars = module.learnt_scalars() | {"iters": float(module.iters)}
    return Layer(
        name=name,
        kind="global" if isinstance(module, GlobalGOCor) else "local",
        distance=distance.cpu().numpy(),
        curves=_curves(objective.maps(distance)),
        start=_curves(fresh.maps(distance)),
        maps=_products(objective.maps(around)),
        start_maps=_products(fresh.maps(around)),
        place=place,
        scalars=scalars,
    )


def _curves(maps: TargetMaps) -> dict[str, Array]:
    return {name: values.cpu().double().numpy() for name, values in zip(NAMES, maps, strict=True)}


def _products(maps: TargetMaps) -> dict[str, Array]:
    """The maps y, v⁺ and v⁻ of the objective."""
    target, weight, mask = (values.cpu().double().numpy() for values in maps)
    return {"y": weight * target, "v⁺": weight, "v⁻": weight * mask}
