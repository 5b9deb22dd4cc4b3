"""The notebooks of this folder, made from the scripts beside them.

    python examples/notebooks/make.py

A script has cells that begin with `# %%`, and text in those that begin with `# %% [markdown]`.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

FOLDER = Path(__file__).resolve().parent
MARK, TEXT = "# %%", " [markdown]"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def scripts() -> list[Path]:
    """The scripts that notebooks are made from."""
    return sorted(file for file in FOLDER.glob("*.py") if file.name != Path(__file__).name)


def notebook(script: Path) -> nbformat.NotebookNode:
    """The notebook of a script, without outputs; its cells are numbered."""
    cells = []
    for index, part in enumerate(script.read_text("utf-8").split(MARK)[1:]):
        first, _, body = part.partition("\n")
        if first == TEXT:
            lines = (line.removeprefix("#").removeprefix(" ") for line in body.strip().split("\n"))
            cells.append(new_markdown_cell("\n".join(lines), id=f"cell-{index}"))
        else:
            cells.append(new_code_cell(body.strip(), id=f"cell-{index}"))
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def main() -> None:
    """Write a notebook beside each script."""
    for script in scripts():
        nbformat.write(notebook(script), script.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
