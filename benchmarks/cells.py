"""Raw files of finished cells, written atomically; a second run adds the missing ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Cells:
    """A folder with one JSON file per finished cell, named after the cell."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def __contains__(self, name: str) -> bool:
        return self._file(name).exists()

    def __getitem__(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self._file(name).read_text()))

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Store a cell's content atomically."""
        draft = self._file(name).with_suffix(".part")
        draft.write_text(json.dumps(content) + "\n")
        draft.rename(self._file(name))

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"
