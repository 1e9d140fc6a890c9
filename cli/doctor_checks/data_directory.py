"""Can a data directory be written, what did killed stacks leave, how far do walls close here?"""

import os
from pathlib import Path

from mallorn.core.errors import InvalidRequest, NotFound, Unavailable
from mallorn.core.host_id import host_folder
from stack.data_directory import DataDir
from stack.temporary_files import left_by_the_dead
from workers.sandbox.sandbox_support import reached

NEXT_START = "nothing to do: the next   mallorn up   removes it"


def rights(data: Path) -> str:
    """Raises NotFound; InvalidRequest where this user, or a read-only disk, allows no writing."""
    if not data.is_dir():
        raise NotFound(
            f"there is no directory {data} yet", hint="mallorn up, or name another with --data DIR"
        )
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidRequest(
            f"{data} cannot be written by user {os.getuid()}",
            hint=f"chown -R {os.getuid()} {data}, or mount its disk for writing",
        )
    return f"{data} can be written"


def stack(directory: DataDir) -> str:
    """Raises Unavailable where a killed stack still says that it is ready."""
    running = directory.running_stack()
    if running is not None:
        return f"{running.url}, process {running.pid}"
    if directory.stack_file.exists():
        raise Unavailable(f"{directory.stack_file} is of a stack that was killed", hint=NEXT_START)
    return "none runs"


def leftovers(directory: DataDir) -> str:
    """Raises Unavailable, naming the folders of parts that were killed."""
    places = directory.scratch, host_folder()
    left = [str(folder) for folder in left_by_the_dead(*places)]
    if left:
        raise Unavailable(f"killed parts left {', '.join(sorted(left))}", hint=NEXT_START)
    return f"killed parts left nothing in {' and '.join(map(str, places))}"


def sandbox(mode: str) -> str:
    """Raises NoSandbox where walls are required and this host lacks some."""
    return f"{reached(mode)}, with MALLORN_SANDBOX={mode}"
