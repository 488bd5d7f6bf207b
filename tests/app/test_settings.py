"""Settings, their bounds and their links."""

from urllib.parse import parse_qs

import pytest
import torch

from gocor.app.settings import Settings, bounds, facts_of, from_query, start_settings
from gocor.utils.errors import InputError

CPU, GPU = torch.device("cpu"), torch.device("cuda")
MODELS = ["recurrent-gocor", "glunet"]
START = start_settings("recurrent-gocor", CPU)


def query_of(settings):
    return {name: values[0] for name, values in parse_qs(settings.to_query()[1:]).items()}


def test_facts_are_the_networks_own():
    recurrent, plain = facts_of("recurrent-gocor"), facts_of("basenet")
    assert (recurrent.iters_local, recurrent.iters_global, recurrent.updates) == (3, 3, 12)
    assert recurrent.can_align
    assert (plain.iters_local, plain.iters_global, plain.updates, plain.can_align) == (None, None, None, False)


def test_a_cpu_starts_at_a_smaller_size():
    assert (START.min_size, START.max_size) == (0, 768)
    on_gpu = start_settings("recurrent-gocor", GPU)
    assert (on_gpu.min_size, on_gpu.max_size) == (1024, 1664)
    assert start_settings("recurrent-gocor", GPU, 512).min_size == 512


def test_a_link_restores_the_settings():
    chosen = Settings(model="glunet", iters_global=5, iters_local=0, updates=4, min_size=512, max_size=640, align=False)
    assert from_query(query_of(chosen), START, MODELS) == chosen
    assert from_query({}, START, MODELS) == START
    assert from_query({"utm": "x", "updates": "3"}, START, MODELS).updates == 3


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"model": "other"}, "named 'other'; there are recurrent-gocor, glunet"),
        ({"max_size": "99999"}, "max_size must be a whole number between 128 and 1664, got '99999'"),
        ({"max_size": "9" * 5000}, "got '9{40}…'"),  # Python refuses to convert so many digits
        ({"iters_local": "-1"}, "iters_local must be a whole number between 0 and 10"),
        ({"updates": "<b>"}, "updates must be a whole number between 1 and 32"),
        ({"align": "yes"}, "align must be 0 or 1, got 'yes'"),
    ],
)
def test_a_wrong_link_says_what_is_wrong(query, message):
    with pytest.raises(InputError, match=message):
        from_query(query, START, MODELS)


def test_the_server_bounds_the_size():
    assert bounds(512)["max_size"] == (128, 512)
    with pytest.raises(InputError, match="between 128 and 512"):
        from_query({"max_size": "640"}, START, MODELS, 512)


def test_options_leave_out_what_the_network_does_not_have():
    options = Settings(model="basenet", min_size=800, max_size=640).options()
    assert (options.iters_global, options.iters_local, options.updates, options.align) == (None, None, None, False)
    assert (options.min_size, options.max_size) == (640, 640)
    assert START.options().updates == 12
    assert START.options().align
