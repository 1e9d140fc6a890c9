"""What a child prints: compilers write to stdout and stderr, and only their last words matter."""

import fcntl
import os
import tempfile

_TAIL_BYTES = 2000
_LIMIT_BYTES = 1 << 20


class ChildLog:
    """An unnamed file that children append to; it is emptied when it has grown too large."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the log
        # The offset is shared with the child: without O_APPEND our reading would move its writing.
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_APPEND)

    def tail(self) -> str:
        """The last lines."""
        size = os.fstat(self.file.fileno()).st_size
        return (
            os.pread(self.file.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
            .decode(errors="replace")
            .strip()
        )

    def trim(self) -> None:
        """Empty the file once it has grown past its limit."""
        if os.fstat(self.file.fileno()).st_size > _LIMIT_BYTES:
            os.ftruncate(self.file.fileno(), 0)

    def close(self) -> None:
        self.file.close()
