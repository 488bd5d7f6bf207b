"""Model cards and tables in Markdown, written from the rows of `zoo`.

`python -m gocor.models.cards` writes the card of every file that ships, and the README of their folder.
`python -m gocor.models.cards --table` prints the table of the documentation.
"""

import json
import sys
from collections.abc import Mapping
from textwrap import fill
from typing import Any

from safetensors import safe_open

from ..utils.files import write_bytes_atomically
from ..utils.toml import to_toml
from .zoo import SHIPPED, Evaluation, TrainingRun, WeightsRow, shipped

METRICS = {"aepe": "AEPE", "pck1": "PCK-1", "pck5": "PCK-5", "auc3": "AUC@3", "auc5": "AUC@5", "auc10": "AUC@10"}
PROTOCOLS = {
    "network": "the network alone",
    "match": "as `gocor match` uses it, with alignment",
}
FROM_DOCS = "../src/gocor/weights/"
WIDTH = 120  # columns of Markdown
FOOTER = "\nWritten by `python -m gocor.models.cards` from `{name}.toml`.\n"
README = """# Weights of the package

{table}

PCK-5 is the share of points within 5 pixels of the truth, in percent, on 16 pairs with changes of viewpoint, of the
network alone. All files are float16; statistics of batch normalisation are float32. Networks without a row have no
trained weights. PWC-Net and PWC-Net-GOCor were trained and measured (`docs/results.md`), but their weights are too
large for the package. `LICENSE-torchvision` is the licence of the VGG-16 features.

To ship another file, copy `best.safetensors` and `best.toml` of a run to this folder as `NAME.safetensors` and
`NAME.toml`, where `NAME` is the name of the network, and run `python -m gocor.models.cards`. It writes the model cards
and this page.
"""


def model_card(row: WeightsRow, *, file: str, options: Mapping[str, Any]) -> str:
    """The model card of one file of weights.

    Args:
        row: the row of the file in the table of weights.
        file: name of the file.
        options: every option of the last training run; empty if there was none.
    """
    facts = {
        "File": f"`{file}`, {row.bytes:,} bytes",
        "SHA-256": f"`{row.sha256}`",
        "Parameters": f"{row.parameters:,}",
        "Data": row.data,
        "Made with": row.made_with,
        "Licence": row.licence,
    }
    parts = [f"# {row.model or file.partition('.')[0]}", _wrapped(row.summary), _bullets(facts)]
    if row.metrics:
        values = "\n".join(f"| {name} | {value} |" for name, value in row.metrics.items())
        at = " at {}×{}".format(*options["size"]) if "size" in options else ""
        caption = "mean end-point error in pixels, and percentages of pixels within 1, 3 and 5 pixels of the truth"
        table = f"| metric | value |\n|---|---:|\n{values}"
        parts += ["## Metrics", _wrapped(f"On held-out pairs{at}: {caption}."), table]
    for evaluation in row.evaluations:
        parts += _evaluation_section(evaluation)
    for number, run in enumerate(row.runs, 1):
        parts += _run_section(run, f"Run {number} of {len(row.runs)}" if len(row.runs) > 1 else "Training")
    if options:
        title = "## Options of the last run" if len(row.runs) > 1 else "## Options"
        parts += [title, f"```toml\n{to_toml(options)}```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def weights_table(rows: Mapping[str, WeightsRow], *, folder: str = "") -> str:
    """A Markdown table of files of weights, by name.

    Args:
        rows: rows of the table, by name of the file.
        folder: folder of the cards that the table links to, as seen from the page that holds the table.
    """
    lines = [
        "| file | content | parameters | MiB | PCK-5 on hpatches_v | licence | data |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    for name, row in rows.items():
        headline = "–" if row.headline is None else f"{row.headline:.1f}"
        cells = f"{row.parameters:,}", f"{row.bytes / 2**20:.1f}", headline, row.licence, row.data
        lines.append(f"| [`{name}.safetensors`]({folder}{name}.md) | {row.summary} | {' | '.join(cells)} |")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """The pages about the weights that ship, by file name: a card for each, and the README of their folder."""
    found = {"README.md": README.format(table=weights_table(shipped()))}
    for name, row in shipped().items():
        with safe_open(SHIPPED / f"{name}.safetensors", "pt") as file:
            options = json.loads((file.metadata() or {}).get("recipe", "{}"))
        card = model_card(row, file=f"{name}.safetensors", options=options)
        found[f"{name}.md"] = card + FOOTER.format(name=name)
    return found


def main(arguments: list[str]) -> None:
    """Write the pages, or print the table of the documentation."""
    if arguments not in ([], ["--table"]):
        sys.exit("usage: python -m gocor.models.cards [--table]")
    if arguments:
        print(weights_table(shipped(), folder=FROM_DOCS))
        return
    for page, text in pages().items():
        write_bytes_atomically(SHIPPED / page, text.encode())
        print(f"wrote {SHIPPED / page}")


def _bullets(facts: Mapping[str, object]) -> str:
    return "\n".join(_wrapped(f"- {name}: {value}", "  ") for name, value in facts.items() if value != "")


def _wrapped(text: str, indent: str = "") -> str:
    return fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _evaluation_section(evaluation: Evaluation) -> list[str]:
    names = [name for name in METRICS if any(name in scores for scores in evaluation.scores.values())]
    lines = [
        f"| data set | {' | '.join(METRICS[name] for name in names)} |",
        "|---|" + "---:|" * len(names),
    ]
    for dataset, scores in evaluation.scores.items():
        lines.append(f"| {dataset} | {' | '.join(str(scores.get(name, '–')) for name in names)} |")
    return [
        f"## Evaluation: {PROTOCOLS[evaluation.protocol]}",
        "AEPE in pixels, everything else in percent.",
        "\n".join(lines),
        f"```\n{evaluation.command}\n```",
    ]


def _run_section(run: TrainingRun, title: str) -> list[str]:
    facts = _bullets({"Steps": run.steps, "Seed": run.seed, "Time": run.time})
    return [f"## {title}", *([_wrapped(run.note)] if run.note else []), facts, f"```\n{run.command}\n```"]


if __name__ == "__main__":
    main(sys.argv[1:])
