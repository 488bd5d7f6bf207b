"""`examples/adapters`: GOCor in the interfaces of other packages, with them or without."""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import gocor
from gocor.data.io.images import write_image
from gocor.models.weights import UntrainedWarning

ADAPTERS = Path(__file__).parents[2] / "examples" / "adapters"
MODEL, QUICK = "recurrent-gocor-tiny", "pwcnet-gocor-tiny"
pytestmark = pytest.mark.filterwarnings("ignore::gocor.models.weights.UntrainedWarning")


def adapter(name):
    spec = importlib.util.spec_from_file_location(name, ADAPTERS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(1, 3, *size, generator=generator) for size in ((48, 64), (56, 40))]


def network():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrainedWarning)
        return gocor.load_model(MODEL, None, device="cpu")


def check_points(points, image):
    assert points.shape[1] == 2
    assert len(points) > 0
    height, width = image.shape[2:]
    assert (points >= 0).all()
    assert (points[:, 0] <= width - 1).all()
    assert (points[:, 1] <= height - 1).all()


def test_kornia(images):
    own = network()
    matcher = adapter("kornia_matcher").GOCorMatcher(own, max_points=100, min_confidence=0.0, min_size=64, align=False)
    found = matcher({"image0": images[0].repeat(2, 1, 1, 1), "image1": images[1].repeat(2, 1, 1, 1)})
    for name, image in (("keypoints0", images[0]), ("keypoints1", images[1])):
        check_points(found[name], image)
    expected = gocor.match(images[0][0], images[1][0], own, min_size=64, align=False).matches(100, 0.0)
    first = found["batch_indexes"] == 0
    rows = torch.cat([found["keypoints0"], found["keypoints1"], found["confidence"][:, None]], 1)
    torch.testing.assert_close(rows[first], torch.from_numpy(expected), rtol=1e-3, atol=1e-3)
    assert found["batch_indexes"].unique().tolist() == [0, 1]
    with pytest.raises(ValueError, match="one batch size, got 1 and 2"):
        matcher({"image0": images[0], "image1": images[1].repeat(2, 1, 1, 1)})


def test_hloc_matcher(images):
    matcher = adapter("hloc_matcher").GOCor({"model": QUICK, "match_threshold": 0.0, "max_keypoints": 50}).eval()
    with torch.no_grad():
        found = matcher({"image0": images[0], "image1": images[1]})
    check_points(found["keypoints0"], images[0])
    check_points(found["keypoints1"], images[1])
    assert found["scores"].shape == (len(found["keypoints0"]),)
    assert len(found["scores"]) <= 50
    with pytest.raises(AssertionError, match="Missing key image1"):
        matcher({"image0": images[0]})


def test_a_copy_in_hloc_is_a_matcher_of_hloc(tmp_path, monkeypatch):
    """hloc loads the one class of `hloc/matchers/gocor.py` that builds on `hloc/utils/base_model.py`."""
    for folder in ("", "matchers", "utils"):
        (tmp_path / "fakehloc" / folder).mkdir()
        (tmp_path / "fakehloc" / folder / "__init__.py").touch()
    (tmp_path / "fakehloc/utils/base_model.py").write_text("class BaseModel: ...\n")
    (tmp_path / "fakehloc/matchers/gocor.py").write_text((ADAPTERS / "hloc_matcher.py").read_text(encoding="utf-8"))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("fakehloc.matchers.gocor")
    base = importlib.import_module("fakehloc.utils.base_model").BaseModel
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    assert [value for value in own if isinstance(value, type)] == [module.GOCor]
    assert issubclass(module.GOCor, base)


def test_hloc_file(images, tmp_path):
    h5py = pytest.importorskip("h5py", reason="needs the extra `hdf5`")
    (tmp_path / "sub").mkdir()
    for name, image in zip(("sub/a.png", "b.png"), images, strict=True):
        write_image(tmp_path / name, (255 * image[0].permute(1, 2, 0)).byte().numpy())
    write = adapter("hloc_matcher").write_matches
    write(tmp_path, [("sub/a.png", "b.png")], tmp_path / "m.h5", model=QUICK, match_threshold=0.0)
    with h5py.File(tmp_path / "m.h5") as file:
        group = file["sub-a.png/b.png"]
        assert set(group) == {"keypoints0", "keypoints1", "scores"}
        count = len(group["scores"])
        assert group["keypoints0"].shape == group["keypoints1"].shape == (count, 2)
        assert count > 0


def test_vismatch(images):
    matcher = adapter("vismatch_matcher").GOCorMatcher("cpu", QUICK, max_num_keypoints=50, min_confidence=0.0)
    first, second, *rest, confidences = matcher._forward(images[0][0], images[1][0])
    check_points(first, images[0])
    check_points(second, images[1])
    assert first.shape == second.shape
    assert isinstance(first, np.ndarray)
    assert rest == [None] * 4
    assert confidences.shape == (len(first),)


def test_vismatch_itself(images):
    base = pytest.importorskip("vismatch", reason="needs vismatch, which is not in the extra `dev`").BaseMatcher
    matcher = adapter("vismatch_matcher").GOCorMatcher("cpu", QUICK, max_num_keypoints=50, min_confidence=0.0)
    assert isinstance(matcher, base)
    found = matcher(images[0][0], images[1][0])
    assert found["matched_kpts0"].shape == (len(found["matched_confidences"]), 2)


def test_ptlflow(images):
    module = adapter("ptlflow_model")
    torch.manual_seed(0)
    model = module.GOCor(MODEL, min_size=64).eval()
    frames = torch.stack([images[0], images[0].roll(2, 3)], 1)  # (1, 2, 3, H, W)
    with torch.no_grad():
        found = model({"images": frames})
        expected = model.network.predict(255 * frames[:, 0].flip(1), 255 * frames[:, 1].flip(1), min_size=64)
    assert found["flows"].shape == (1, 1, 2, 48, 64)
    torch.testing.assert_close(found["flows"][:, 0], expected.flow)
    torch.testing.assert_close(found["confs"][:, 0], expected.confidence)
    torch.testing.assert_close(found["occs"][:, 0], 1 - expected.visibility)
    assert model.output_stride == 1


def test_ptlflow_itself(images, tmp_path, monkeypatch):
    ptlflow = pytest.importorskip("ptlflow", reason="needs ptlflow, which is not in the extra `dev`")
    (tmp_path / "own_models").mkdir()
    (tmp_path / "own_models/__init__.py").touch()
    (tmp_path / "own_models/flow.py").write_text((ADAPTERS / "ptlflow_model.py").read_text(encoding="utf-8"))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_models.flow")
    assert "GOCor" in ptlflow.get_model_names()
    assert isinstance(ptlflow.get_model_reference("GOCor")(MODEL), ptlflow.BaseModel)


def test_kornia_itself(images):
    kornia = pytest.importorskip("kornia", reason="needs kornia, which is not in the extra `dev`")
    matcher = adapter("kornia_matcher").GOCorMatcher(network(), max_points=100, min_confidence=0.0, min_size=64)
    found = matcher({"image0": images[0], "image1": images[1]})
    homography, inliers = kornia.geometry.RANSAC("homography", inl_th=100.0)(found["keypoints0"], found["keypoints1"])
    assert homography.shape == (3, 3)
    assert len(inliers) == len(found["keypoints0"])


def test_adapters_are_short():
    for path in ADAPTERS.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 100, path
