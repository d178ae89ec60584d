"""Runs cells in a real kernel, one after another, as a notebook does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nbformat
from nbclient import NotebookClient


@dataclass(frozen=True)
class Cell:
    """What a cell gave: its text on stdout and stderr, its HTML, the value of its last line, and its error."""

    printed: str
    warned: str
    html: str
    value: str
    error: str


def run_cells(*sources: str) -> list[Cell]:
    """Run the cells in a new kernel; those after one that fails are run too."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", allow_errors=True)
    client.execute()
    return [_cell(cell.outputs) for cell in notebook.cells]


def _cell(outputs: list[Any]) -> Cell:
    text = {"stdout": "", "stderr": ""}
    html = value = error = ""
    for output in outputs:
        match output.output_type:
            case "stream":
                text[output.name] += output.text
            case "display_data" | "execute_result":
                html += output.data.get("text/html", "")
                value += output.data.get("text/plain", "")
            case "error":
                error += "\n".join(output.traceback)
    return Cell(text["stdout"], text["stderr"], html, value, _plain(error))


def _plain(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)
