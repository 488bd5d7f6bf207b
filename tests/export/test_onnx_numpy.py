"""`examples/onnx_numpy.py`: an exported network without torch and gocor."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from gocor.data.io.flow_files import read_flow
from gocor.data.io.images import read_image
from gocor.export.check import run_onnx

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_numpy.py"


def test_it_writes_the_flow_of_the_network(exported, tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in ((60, 70), (50, 80))]
    for name, image in zip(("a", "b"), images, strict=True):
        np.save(tmp_path / f"{name}.npy", image)
    code = f"""
import runpy, sys
sys.argv = ["onnx_numpy.py", {str(exported.path)!r}, "a.npy", "b.npy", "out"]
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
assert not {{"torch", "gocor", "PIL", "cv2"}} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "flow (2, 60, 70)" in done.stdout
    assert [line.split()[1] for line in done.stdout.splitlines()[1:]] == ["confidence", "visibility"]
    inputs = (torch.from_numpy(image).permute(2, 0, 1)[None].float() for image in images)
    expected = run_onnx(exported.path)(*inputs)[0][0].numpy()
    found, known = read_flow(tmp_path / "out" / "flow.flo")
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert known.all()
    assert read_image(tmp_path / "out" / "flow.png").shape == (60, 70, 3)
