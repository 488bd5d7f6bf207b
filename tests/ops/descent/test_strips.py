"""Strips of filters give what the whole filter map gives."""

import pytest
import torch

from gocor import GlobalGOCor
from gocor.ops.descent import strips
from gocor.utils.errors import InputError


@pytest.mark.parametrize("scores", [1, 3 * 2 * 7 * 35, 2**19])  # strips of one row, of three, the whole map
@pytest.mark.parametrize("options", [{}, {"initializer": "context", "eta": 0.1}, {"bidirectional": True}])
@torch.no_grad()
def test_strips_equal_the_specification(scores, options, monkeypatch):
    monkeypatch.setattr(strips, "SCORES", scores)
    reference, query = (
        torch.randn(2, 6, 5, 7).double(),
        torch.randn(2, 6, 5, 7 if options.get("bidirectional") else 4).double(),
    )
    options = {"initializer": "simple", "query_objective": False, "regularizer": "relative", **options}
    in_strips, whole = (GlobalGOCor(6, form=form, **options).double() for form in ("strips", "filters"))
    whole.load_state_dict(in_strips.state_dict())
    torch.testing.assert_close(in_strips(reference, query), whole(reference, query), rtol=1e-12, atol=1e-12)


def test_strips_are_chosen_for_large_maps_without_gradients():
    small, large = torch.randn(1, 64, 4, 4), torch.randn(1, 8, 12, 12)
    module = GlobalGOCor(8, initializer="simple", query_objective=False)
    assert module.selected_form(large, large).name == "filters"  # its parameters need gradients
    with torch.no_grad():
        assert module.selected_form(large, large).name == "strips"
        assert module.selected_form(small, small).name == "gram"
        with_query = GlobalGOCor(8, initializer="simple")
        assert with_query.selected_form(large, large).name != "strips"
        with pytest.raises(InputError, match=r"form='strips' cannot run here: it needs CPU, no query objective"):
            GlobalGOCor(8, form="strips")(large, large)
