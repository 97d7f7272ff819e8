"""The notebook runs from its first cell to its last, and says what it promises."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
TOUR = ROOT / "docs" / "tour.ipynb"


def test_the_tour_runs() -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(TOUR.parent)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    pages = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert any("slow-average" in page and "±" in page for page in pages)
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "round 10 of 10" in printed
    assert "| Local" in printed
