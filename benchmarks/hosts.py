"""Describes the host and software on which a figure was measured."""

import platform
import subprocess
from importlib.metadata import version
from typing import Any

from mallorn.workers.device.detect_host import read_host_facts

PACKAGES = ("apache-tvm", "apache-tvm-ffi", "onnxruntime", "numpy", "xgboost-cpu", "celery", "sqlalchemy")


def describe_host() -> dict[str, Any]:
    """Return host (without its name), versions and commit, for raw files."""
    host = {key: value for key, value in read_host_facts().items() if key != "hostname"}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "host": host,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "commit": commit.stdout.strip(),
    }
