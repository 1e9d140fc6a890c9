"""How far walls close on this host: tried in a process of its own, as walls are for good.

python -P -m workers.sandbox.sandbox_support MODE
"""

import logging
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Final

from mallorn.core.errors import HostFault
from workers.sandbox.sandbox import OFF, REQUIRE, WHOLE, SandboxSpec, enter_sandbox

log = logging.getLogger(__name__)
_ROOT: Final = str(Path(__file__).resolve().parents[2])
HINT: Final = "MALLORN_SANDBOX=best-effort takes what there is   (docs/security.md)"


class NoSandbox(HostFault):
    """This host cannot wall off the processes that handle strangers' models, and MALLORN_SANDBOX=require."""


@lru_cache
def reached(mode: str) -> str:
    """`full`, `off`, or what is missing, in words. Raises NoSandbox where all of it is required."""
    if mode == OFF:
        return OFF
    command = [sys.executable, "-P", "-m", "workers.sandbox.sandbox_support"]
    told = subprocess.run(
        command, env={"PYTHONPATH": _ROOT}, capture_output=True, text=True, check=False
    ).stdout.strip()
    told = checked(told or "without all: it could not be tried", mode)
    if told != WHOLE:
        log.warning("the sandbox around strangers' models and candidates is %s   (docs/security.md)", told)
    return told


def checked(told: str, mode: str) -> str:
    """What was told of the walls. Raises NoSandbox where all of them are required."""
    if mode == REQUIRE and told != WHOLE:
        raise NoSandbox(
            f"the sandbox of this host is {told}; all of it is required by MALLORN_SANDBOX=require, "
            "which is the default where callers need an API key or other machines reach a device",
            hint=HINT,
        )
    return told


if __name__ == "__main__":
    print(enter_sandbox(SandboxSpec(room=Path(_ROOT))))  # noqa: T201 - the answer
