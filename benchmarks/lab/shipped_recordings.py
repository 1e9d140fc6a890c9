"""Recordings that come with the source, for comparisons of searchers without a device."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mallorn.core.errors import NotFound

_FOLDER: Final = Path(__file__).parents[1] / "data/recordings"


def shipped_recordings() -> Mapping[str, Path]:
    """Return the files of all shipped recordings, by the name of the device that measured."""
    return {file.stem: file for file in sorted(_FOLDER.glob("*.parquet"))}


def shipped_recording(device: str) -> Path:
    """Return the recording of a device. Raises NotFound, naming those that exist."""
    recordings = shipped_recordings()
    if device not in recordings:
        names = ", ".join(recordings) or "none"
        raise NotFound(f"no recording of {device} is shipped", hint=f"shipped: {names}")
    return recordings[device]
