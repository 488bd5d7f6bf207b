"""The choice of the form that runs."""

import logging
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gocor import GlobalGOCor, LocalGOCor
from gocor.ops import select
from gocor.ops.forms import FORMS, forms_table
from gocor.ops.select import gram_is_cheaper, needs_gradients


def pair(*shape, dtype=torch.float32):
    return torch.randn(2, *shape).to(dtype).unbind()


@pytest.fixture
def kernels(monkeypatch):
    monkeypatch.setattr(select, "kernels_run_on", lambda device: True)


@pytest.fixture
def old_gpu(monkeypatch):
    """A GPU on which the kernels do not run."""
    monkeypatch.setattr(select, "HAS_TRITON", True)
    monkeypatch.setattr(select, "_CAPABLE", {})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))


def local(*features, **options):
    return LocalGOCor(**options).selected_form(*features).name


@pytest.mark.parametrize(
    ("options", "grad", "expected"),
    [
        ({}, False, "tiles"),
        ({}, True, "filters"),
        ({"form": "filters"}, False, "filters"),
        ({"query_objective": True}, False, "filters"),
        ({"radius": 1}, False, "filters"),
        ({"initializer": "context"}, False, "tiles"),
    ],
)
def test_local_on_a_cpu(options, grad, expected):
    module, features = LocalGOCor(**options), pair(1, 4, 6, 8)
    with torch.set_grad_enabled(grad):
        assert module.selected_form(*features).name == expected
        assert module(*features).requires_grad == grad
    module.requires_grad_(False)
    assert module.selected_form(*features).name == expected.replace("filters", "tiles" if grad else "filters")


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("shape", "dtype", "options", "without", "with_gradients"),
    [
        ((1, 64, 8, 8), torch.float32, {}, "tensor-cores", "gram-kernels"),
        ((1, 65, 8, 8), torch.float32, {}, "gram-kernels", "gram-kernels"),
        ((1, 128, 8, 8), torch.bfloat16, {}, "tensor-cores", "gram-kernels"),
        ((1, 256, 8, 8), torch.bfloat16, {}, "gram-kernels", "gram-kernels"),
        ((1, 256, 64, 64), torch.bfloat16, {}, "tensor-cores", "gram-kernels"),
        ((1, 257, 64, 64), torch.bfloat16, {}, "gram-kernels", "gram-kernels"),
        ((1, 8, 8, 8), torch.float32, {"radius": 5}, "gram-kernels", "gram-kernels"),
        ((1, 8, 8, 8), torch.float32, {"initializer": "zero"}, "tensor-cores", "gram-kernels"),
        ((1, 8, 8, 8), torch.float32, {"initializer": "context"}, "tiles", "filters"),
        ((1, 8, 8, 8), torch.float32, {"query_objective": True}, "filters", "filters"),
        ((1, 8, 8, 8), torch.float32, {"radius": 9}, "tiles", "filters"),
        ((1, 8, 8, 8), torch.float64, {}, "tiles", "filters"),
    ],
)
def test_local_where_kernels_run(shape, dtype, options, without, with_gradients):
    features = pair(*shape, dtype=dtype)
    assert local(*features, **options) == with_gradients
    with torch.no_grad():
        assert local(*features, **options) == without


def test_a_gpu_without_kernels_gets_the_plain_form(old_gpu):
    assert not select.kernels_run_on(torch.device("cuda"))
    with torch.device("meta"):
        module, features = LocalGOCor(), torch.empty(2, 1, 8, 9, 9).unbind()
    assert module.selected_form(*features).name == "filters"
    with torch.no_grad():
        assert module.selected_form(*features).name == "filters"
    module.form = "fused"
    with pytest.raises(ValueError, match="form='fused' cannot run here: it needs NVIDIA GPU from Ampere on"):
        module.selected_form(*features)


def test_global_takes_the_cheaper_form():
    def on(device, *shape):
        features = [torch.empty(shape, device=device)] * 2
        return gram_is_cheaper(*features, 3, query_term=True)

    assert on("cpu", 1, 512, 16, 16)  # the networks' level
    assert not on("cpu", 1, 32, 32, 32)
    # A GPU is bound by launches on small maps, by arithmetic on large ones.
    assert on("meta", 1, 32, 16, 16)
    assert not on("meta", 8, 32, 64, 64)
    assert GlobalGOCor(64).selected_form(*pair(1, 64, 3, 3)).name == "gram"
    assert GlobalGOCor(4).selected_form(*pair(1, 4, 9, 9)).name == "filters"
    assert GlobalGOCor(4, form="gram").selected_form(*pair(1, 4, 9, 9)).name == "gram"


@pytest.mark.usefixtures("kernels")
def test_global_where_kernels_run():
    module, features = GlobalGOCor(64), pair(1, 64, 3, 3)
    assert module.selected_form(*features).name == "gram"
    with torch.no_grad():
        assert module.selected_form(*features).name == "gram-kernels"
        assert GlobalGOCor(64, query_kernel=5).selected_form(*features).name == "gram"
        assert GlobalGOCor(64, query_channels=(4, 16)).selected_form(*features).name == "gram"
        assert GlobalGOCor(4).selected_form(*pair(1, 4, 9, 9)).name == "filters"


@pytest.mark.parametrize("override", ["filters", "gram", "nonsense"])
def test_the_environment_replaces_auto_where_it_can(override, monkeypatch):
    monkeypatch.setattr(select, "FORM_OVERRIDE", override)
    features = pair(1, 64, 3, 3)
    with torch.no_grad():
        assert GlobalGOCor(64).selected_form(*features).name == ("filters" if override == "filters" else "gram")
        assert LocalGOCor().selected_form(*features).name == ("filters" if override == "filters" else "tiles")
        assert LocalGOCor(form="tiles").selected_form(*features).name == "tiles"


def test_a_form_that_cannot_run_is_an_error():
    features = pair(1, 4, 5, 6)
    with pytest.raises(ValueError, match="form='tiles' cannot run here: it needs CPU, R ≥ 2"):
        LocalGOCor(form="tiles")(*features)
    with pytest.raises(ValueError, match="form must be one of"):
        LocalGOCor(form="gram")
    with pytest.raises(ValueError, match="form must be one of"):
        GlobalGOCor(form="tiles")


def test_one_definition_of_no_gradients():
    plain, leaf = torch.ones(1), torch.ones(1, requires_grad=True)
    assert needs_gradients(plain, leaf)
    assert not needs_gradients(plain)
    with torch.no_grad():
        assert not needs_gradients(leaf)


def test_each_choice_is_logged_once(caplog):
    select._log_once.cache_clear()
    module, features = LocalGOCor(2), pair(1, 4, 5, 6)
    with caplog.at_level(logging.DEBUG, "gocor"):
        module(*features)
        module(*features)
    assert [record.message for record in caplog.records] == [
        "local GOCor on cpu in torch.float32 runs as 'filters' (form='auto')"
    ]


def test_the_table_lists_every_form_and_its_file():
    table = forms_table()
    for form in FORMS:
        assert f"| `{form.name}` | {form.module} |" in table
        assert (Path(select.__file__).parent / "descent" / form.file).is_file()


def test_the_documentation_has_the_table():
    assert forms_table() in (Path(__file__).parents[2] / "docs" / "method.md").read_text()


def test_the_compiler_takes_the_answer_about_a_device_as_constant():
    """`kernels_run_on` is marked as the decorator marks functions, without its import of the compiler."""

    def decorated(device):
        return True

    torch.compiler.assume_constant_result(decorated)
    assert vars(decorated).items() <= vars(select.kernels_run_on).items()
    assert vars(decorated)


def test_images_are_cut_into_strips_on_a_cpu_and_large_ones_on_a_gpu():
    assert select.rows_of_strips(torch.empty(1, 3, 64, 64)) == select.STRIP_ROWS
    assert select.rows_of_strips(torch.empty(1, 3, 64, 64, requires_grad=True)) is None
    with FakeTensorMode():
        small, large, wide = (
            torch.empty(1, 3, *size, device="cuda") for size in ((768, 1024), (1200, 1664), (64, 2**17))
        )
        assert select.rows_of_strips(small) is None
        rows = select.rows_of_strips(large)
        assert rows % 2 == 0
        assert select.STRIP_PIXELS - 2 * 1664 < rows * 1664 <= select.STRIP_PIXELS
        assert select.rows_of_strips(wide) == select.STRIP_ROWS
        assert select.rows_of_strips(large, torch.empty(1, requires_grad=True)) is None
