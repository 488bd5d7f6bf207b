"""Rules that translate published parameter names to ours; each network lists its own as `published_rules`."""

import re
from collections.abc import Callable

from ..modules.gocor import PUBLISHED_NAMES

Rule = tuple[str, str | Callable[[re.Match[str]], str]]
"""A pattern of published parameter names and its replacement."""


def context_rules(published: str, ours: str) -> tuple[Rule, ...]:
    """Rules of a context network: layers 1 to 6, then the layer that predicts flow."""
    return (
        (rf"{published}([1-6])\.(.*)", lambda m: f"{ours}.convs.{int(m[1]) - 1}.{m[2]}"),
        (rf"{published}7\.(.*)", rf"{ours}.predict.\1"),
    )


def gocor_rule(pattern: str, ours: str) -> Rule:
    """Rule of a GOCor module's parameters; the last group of the pattern is the parameter's published name."""

    def translate(match: re.Match[str]) -> str:
        *others, parameter = match.groups()
        return f"{ours.format(*others)}.{PUBLISHED_NAMES.get(parameter, parameter)}"

    return pattern, translate


VGG_DECODER_RULES: tuple[Rule, ...] = (
    (r"pyramid\.(.*)", r"pyramid.\1"),
    (r"decoder4\.conv(\d)\.(.*)", r"decoder4.convs.\1.\2"),
    (r"decoder4\.final\.(.*)", r"decoder4.predict.\1"),
    (r"decoder(\d)\.conv_(\d)\.(.*)", r"decoder\1.convs.\2.\3"),
    (r"decoder(\d)\.predict_flow\.(.*)", r"decoder\1.predict.\2"),
    (r"(upfeat\d\..*)", r"\1"),
    (r"deconv(\d)\.(.*)", r"upflow\1.\2"),
    gocor_rule(r"corr\.corr_module\.(filter_.*)", "global_matching.correlation"),
    gocor_rule(r"local_corr\.(filter_.*)", "local_matching.correlation"),
    (r"NeighConsensus\.conv\.(\d)\.(.*)", lambda m: f"global_matching.consensus.convs.{int(m[1]) // 2}.{m[2]}"),
)
