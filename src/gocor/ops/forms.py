"""The forms of GOCor's iterations, among which `select` chooses."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Form:
    """One way to compute GOCor's iterations.

    Attributes:
        name: value of `form=` and of GOCOR_FORM.
        module: `"local"`, `"global"` or `"both"`.
        gradients: whether autograd can differentiate it.
        needs: conditions under which it can run.
        buys: which form it is faster than, and by how much (docs/performance.md).
        file: its file in `gocor/ops/descent`.
    """

    name: str
    module: Literal["local", "global", "both"]
    gradients: bool
    needs: str
    buys: str
    file: str

    def __str__(self) -> str:
        return self.name


FORMS = (
    Form(
        "tensor-cores", "local", False,
        "NVIDIA GPU from Ampere on, Triton; 16 or 32 bits, R ≤ 4, up to 128 channels (bfloat16: 256); initialiser "
        "simple or zero, no query objective",
        "up to 9 times faster than gram-kernels: one launch from features to volume",
        "local_tile_triton.py",
    ),
    Form(
        "gram-kernels", "local", True,
        "the same GPUs; 16 or 32 bits, R ≤ 8; initialiser simple or zero, no query objective; differentiable once, not "
        "under torch.func",
        "10 times faster than filters: all iterations in one launch, recomputed in the backward pass",
        "local_gram_triton.py",
    ),
    Form(
        "tiles", "local", False,
        "CPU, R ≥ 2, no query objective, not under torch.compile or torch.func",
        "2 to 3 times faster than filters: all iterations of a tile while it is in the cache",
        "tiles.py",
    ),
    Form(
        "gram-kernels", "global", False,
        "the same GPUs; 16 or 32 bits; R with 3×3 kernels and 16, 32 or 64 channels, where gram is the cheaper form",
        "1.2 to 5 times faster than gram: 22 launches instead of 217",
        "global_triton.py",
    ),
    Form(
        "gram", "global", True,
        "anywhere, chosen where it needs fewer multiply-adds than filters",
        "up to 1.7 times faster than filters: no products with the channels in the loop",
        "gram.py",
    ),
    Form(
        "strips", "global", False,
        "CPU, no query objective, not under torch.compile or torch.func; where gram needs more multiply-adds",
        "3 times faster than filters for large maps: all iterations of a few rows while their scores are in the cache",
        "strips.py",
    ),
    Form("filters", "both", True, "anywhere", "nothing: it is the specification", "reference.py"),
)  # fmt: skip


def forms_table() -> str:
    """The forms as a Markdown table, in the order in which they are tried."""
    head = ["form", "module", "gradients", "needs", "advantage", "file"]
    rows = [[f"`{f.name}`", f.module, "yes" if f.gradients else "no", f.needs, f.buys, f"`{f.file}`"] for f in FORMS]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
