"""Packages of AArch64 with which a board checks an export; fetched once."""

import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.fixtures.command_line import ROOT
from tests.fixtures.emulated import VERSION

FOLDER: Final = ROOT / "build" / "boards"
_SAME: Final = ("onnx", "protobuf", "ml_dtypes")
_PLATFORMS: Final = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64")


def unpacked_wheels() -> Path:
    """Return the folder with the packages of this environment's versions."""
    ready = FOLDER / "ready"
    if not ready.exists():
        platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
        wanted = [f"{name}=={version(name)}" for name in _SAME]
        words = ["--no-deps", "--only-binary=:all:", "--python-version", VERSION, *platforms]
        command = [sys.executable, "-m", "pip", "download", "-q", *words, "-d", str(FOLDER / "wheels")]
        subprocess.run([*command, *wanted], check=True)
        for wheel in (FOLDER / "wheels").glob("*.whl"):
            with zipfile.ZipFile(wheel) as file:
                file.extractall(FOLDER)
        ready.touch()
    return FOLDER
