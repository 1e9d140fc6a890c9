"""Raw files of finished cells: there as a whole or not at all, so that a second run makes what is missing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Cells:
    """A folder with one file a cell, by the cells' names."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def __contains__(self, name: str) -> bool:
        return self._file(name).exists()

    def __getitem__(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self._file(name).read_text()))

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Store a cell's figures in one go."""
        half = self._file(name).with_suffix(".part")
        half.write_text(json.dumps(content) + "\n")
        half.rename(self._file(name))

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"
