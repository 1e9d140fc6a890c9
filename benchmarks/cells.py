"""Raw files of finished cells: there as a whole or not at all, so that a second run makes what is missing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def keep(file: Path, content: Mapping[str, Any]) -> None:
    """Store a cell's figures in one go."""
    half = file.with_suffix(".part")
    half.write_text(json.dumps(content) + "\n")
    half.rename(file)
