"""Tests how much of the sandbox this host supports, in a child: no process can leave one.

python -P -m mallorn.workers.sandbox.sandbox_support
"""

import logging
import subprocess
import sys
from functools import lru_cache
from typing import Final

from mallorn.core.errors import HostFault
from mallorn.core.installation import IMPORT_ROOT
from mallorn.workers.sandbox.sandbox import (
    OFF,
    OLD_KERNEL,
    REQUIRE,
    REQUIRE_FILES,
    WHOLE,
    SandboxSpec,
    enter_sandbox,
)

log = logging.getLogger(__name__)
HINT: Final = "MALLORN_SANDBOX=best-effort takes what there is   (docs/security.md)"


class NoSandbox(HostFault):
    """Raised with MALLORN_SANDBOX=require if this host cannot sandbox untrusted models."""


@lru_cache
def probe_sandbox_support(mode: str) -> str:
    """Return how much of the sandbox this host supports: `full`, what is missing, or `off`
    if that is the mode. Raises NoSandbox if `mode` requires it and something is missing."""
    if mode == OFF:
        return OFF
    command = [sys.executable, "-P", "-m", "mallorn.workers.sandbox.sandbox_support"]
    report = subprocess.run(
        command, env={"PYTHONPATH": str(IMPORT_ROOT)}, capture_output=True, text=True, check=False
    ).stdout.strip()
    report = require_sandbox_mode(report or "without all: it could not be tried", mode)
    if report != WHOLE:
        log.warning("the sandbox around untrusted models and candidates is %s   (docs/security.md)", report)
    return report


def require_sandbox_mode(report: str, mode: str) -> str:
    """Return the sandbox's description. Raises NoSandbox unless it satisfies `mode`."""
    if mode == REQUIRE and report != WHOLE:
        raise NoSandbox(
            f"the sandbox of this host is {report}; all of it is required by MALLORN_SANDBOX=require, "
            "which is the default where callers need an API key or other machines reach a device",
            hint=HINT,
        )
    is_old_kernel = report.startswith(f"without {OLD_KERNEL}") and "; " not in report
    if mode == REQUIRE_FILES and report != WHOLE and not is_old_kernel:
        raise NoSandbox(
            f"the sandbox of this host is {report}; Landlock and seccomp are required by "
            "MALLORN_SANDBOX=require-files, the default for a device on a private network",
            hint=HINT,
        )
    return report


if __name__ == "__main__":
    print(enter_sandbox(SandboxSpec(room=IMPORT_ROOT)))  # noqa: T201 - the answer
