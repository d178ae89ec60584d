"""Runs cells in a real kernel, one after another, as a notebook does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nbformat
from nbclient import NotebookClient


@dataclass(frozen=True)
class Cell:
    """The output of a cell: its text on stdout and stderr, its HTML, the value of its last line, and its error."""

    printed: str
    warned: str
    html: str
    value: str
    error: str


def run_cells(*cells: str | tuple[str, str]) -> list[Cell]:
    """Run the cells in a new kernel; cells after one that fails are run too.

    A cell is given by its source, or by its identity and its source. The identity is passed to the kernel, as notebook
    editors do, which takes a repeated identity for the same cell that is run again.
    """
    named = [cell if isinstance(cell, tuple) else ("", cell) for cell in cells]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for _, source in named])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", allow_errors=True)
    with client.setup_kernel():
        for index, (cell, (identity, _)) in enumerate(zip(notebook.cells, named)):
            client.kc.session.metadata = {"cellId": identity} if identity else {}
            client.execute_cell(cell, index)
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
