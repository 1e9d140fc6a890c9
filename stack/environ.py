"""What our child processes find in their environment."""

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def python_path() -> str:
    """Where a child finds this very version of us, installed or not."""
    return os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def search_path() -> str:
    """PATH and the interpreter's own directory: set-up puts a C compiler there where the system has none."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
