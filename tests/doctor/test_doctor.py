"""Facts and checks of `gocor doctor`."""

import torch

from gocor.doctor import checks, facts
from gocor.models import zoo


def test_versions_are_of_what_is_installed():
    found = facts.versions()
    assert found["torch"] == torch.__version__
    assert found["python"]
    assert facts._version("no-such-package") is None


def test_extras_say_which_packages_are_missing():
    requirements = [
        "torch<3,>=2.10",
        "numpy<3,>=1.26; extra == 'a'",
        'no-such-package>=1; extra == "b"',
        "gocor[a,b]; extra == 'c'",
        "no-such-package>=1; extra == 'dev'",
    ]
    assert facts.extras(requirements) == {"a": [], "b": ["no-such-package"], "c": ["no-such-package"]}


def test_the_cpu_has_a_name(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Example 9000\nmodel name\t: Example 9000\n")
    assert facts.cpu_name(tmp_path / "cpuinfo") == "Example 9000"
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert facts.cpu_name(tmp_path / "gone") == "arm"
    assert facts.devices()[0]["name"] == facts.cpu_name()


def test_forms_are_those_that_modules_select():
    from gocor import LocalGOCor

    found = facts.forms(torch.device("cpu"))
    layer = LocalGOCor(radius=4)
    features = torch.randn(1, 64, 48, 64)
    with torch.no_grad():
        assert found["local GOCor, inference"] == layer.selected_form(features, features).name
    assert found["local GOCor, training"] == layer.selected_form(features, features).name
    assert found["lookups"] == "torch"


def test_all_forms_agree_here():
    for module in checks._modules().values():
        detail = checks._check_forms(module, torch.device("cpu"))
        assert "within" in detail


def test_a_wrong_form_is_found(monkeypatch):
    module = checks._modules()["local GOCor"]
    right = type(module)._volume

    def wrong(self, *inputs):
        return right(self, *inputs) * (1.1 if self.form == "tiles" else 1)

    monkeypatch.setattr(type(module), "_volume", wrong)
    check = checks._run("forms", lambda: checks._check_forms(module, torch.device("cpu")))
    assert not check.passed
    assert "tiles: they differ from filters by" in check.detail


def test_damaged_weights_are_found(monkeypatch, tmp_path):
    zoo.shipped()  # read before the folder changes
    zoo.shipped_file.cache_clear()
    (tmp_path / "vgg16.safetensors").write_bytes(b"damaged")
    monkeypatch.setattr(zoo, "SHIPPED", tmp_path)
    damaged = checks._run("weights", lambda: checks._check_weights("vgg16"))
    missing = checks._run("weights", lambda: checks._check_weights("basenet"))
    zoo.shipped_file.cache_clear()
    assert not damaged.passed
    assert "is damaged" in damaged.detail
    assert not missing.passed
    assert "is missing" in missing.detail


def test_a_wrong_match_and_a_bug_are_found(monkeypatch):
    class Result:
        model = "wrong"
        flow = torch.zeros(2, 480, 640)

    monkeypatch.setattr(checks, "match", lambda *images, **options: Result())
    check = checks._run("match", lambda: checks._check_match(torch.device("cpu")))
    assert not check.passed
    assert "wrong is wrong by" in check.detail
    bug = checks._run("bug", lambda: [][1])
    assert (bug.passed, bug.detail) == (False, "IndexError: list index out of range")
