"""`examples/gocor.ipynb` runs from the first cell to the last."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "gocor.ipynb"


def test_the_notebook_runs(tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("GOCOR_QUICK", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "store the notebook without outputs"
    (install,) = (cell for cell in notebook.cells if "install" in cell.metadata.get("tags", []))
    assert install.source.strip() == "%pip install --quiet gocor"
    assert "](../" not in NOTEBOOK.read_text(encoding="utf-8"), "Colab has the notebook alone, so links are absolute"
    notebook.cells.remove(install)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert "matches, flow (2, " in printed
    assert "mean error of the flow: " in printed
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
