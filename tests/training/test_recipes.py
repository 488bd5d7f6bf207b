"""Recipes that ship."""

import pytest

from gocor.data.datasets.entries import parse_entries
from gocor.models.registry import REGISTRY
from gocor.training.config import make_config, read_toml
from gocor.training.flow_data import FlowPairs
from gocor.training.recipes import list_recipes, recipe_file

from ..data.datasets.samples import write_sample


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_is_a_valid_run(name):
    options = read_toml(recipe_file(name))
    if "flow" not in options:
        options["data"] = ("photos",)
    config = make_config(options)
    assert config.model in REGISTRY
    assert config.loss == ("mean" if config.model == "recurrent-gocor" else "published")
    parse_entries(config.flow, "data")
    text = recipe_file(name).read_text()
    assert f"gocor train --recipe {name} " in text
    assert all(word in text for word in (["--flow-root"] if config.flow else ["--data"]))


@pytest.mark.parametrize(("name", "dataset"), [("pwcnet-chairs", "flyingchairs"), ("pwcnet-gocor-sintel", "sintel")])
def test_the_data_of_a_recipe_is_found_in_the_layout_of_the_data_set(name, dataset, tmp_path):
    root = write_sample(dataset, tmp_path)
    pairs, _ = FlowPairs.open(read_toml(recipe_file(name))["flow"], root=root, size=(32, 48))
    assert pairs.batch(0, 2).flow.shape == (2, 2, 32, 48)


def test_unknown_recipes():
    with pytest.raises(ValueError, match="no recipe is named 'pwcnet-thing'; the nearest are pwcnet-things"):
        recipe_file("pwcnet-thing")
