"""A notebook as a page: its text, its code, and what it printed and drew when it was last executed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def page(path: Path) -> str:
    """The notebook as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield _output(output)


def _output(output: Mapping[str, Any]) -> str:
    """What a cell gave, in the form that reads best on a page."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        return f"![What the cell drew](data:image/png;base64,{''.join(data['image/png']).replace(chr(10), '')})"
    if "text/html" in data:
        return "".join(data["text/html"])
    return f"```text\n{''.join(data['text/plain'])}\n```"
