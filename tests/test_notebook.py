"""The notebook of examples/ runs from a folder of audio to a corrected manifest."""

import ast
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "audit.ipynb"


@pytest.mark.slow
def test_the_notebook_corrects_transcripts_and_shows_sound_and_pictures(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert len(notebook.cells) <= 15
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output["data"] for output in outputs if "data" in output]
    assert sum("image/png" in data or "image/svg+xml" in data for data in shown) >= 5
    assert sum("<audio" in data.get("text/html", "") for data in shown) == 3
    [right] = (text for data in shown if (text := data.get("text/plain", "")).startswith("{'before'"))
    right = ast.literal_eval(right)
    assert right["before"] == 72
    assert right["after"] > right["before"]
