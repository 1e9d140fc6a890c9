"""Error classes, each named after what the caller must do.

An error without a message uses its docstring as message. `hint` is the next command to
type, and `suggest` holds job options with which the same request may succeed.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, ClassVar

from mallorn.core.redaction import redact


class ExitCode(IntEnum):
    """Exit codes of the command line, by what a script can do next (docs/reference/errors.md)."""

    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    KEY_NEEDED = 4
    CONFLICT = 5
    UNREACHABLE = 6
    TIMED_OUT = 7
    JOB_FAILED = 8
    CHECK_FAILED = 9
    NOT_APPLIED = 10
    SLOWER = 11
    INTERRUPTED = 130


class MallornError(Exception):
    """An unexpected error occurred inside Mallorn."""

    status_code: ClassVar[int] = 500
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    usual_hint: ClassVar[str] = ""
    request_id: str = ""  # id of the request that failed, if a coordinator sent the error
    retry_sec: int | None = None  # seconds after which a client may retry, if known

    def __init__(
        self, message: str | None = None, *, hint: str = "", suggest: Mapping[str, object] | None = None
    ) -> None:
        self.message = redact(message or (self.__doc__ or "").strip().splitlines()[0])
        self.hint = redact(hint or self.usual_hint)
        self.suggest = suggest
        super().__init__(self.message)

    def __str__(self) -> str:
        """Return the message with the hint on the next line, for tracebacks and logs."""
        return f"{self.message}\nnext: {self.hint}" if self.hint else self.message

    @property
    def headline(self) -> str:
        """First line of the message."""
        return self.message.partition("\n")[0]

    @property
    def code(self) -> str:
        return type(self).__name__


class InvalidRequest(MallornError):
    """The request cannot be carried out as written; change it and send it again."""

    status_code = 422
    exit_code = ExitCode.USAGE


class UnknownName(InvalidRequest):
    """The name is not known here."""


class ClassRefused(InvalidRequest):
    """A job may not name this class: it is not allowed, or is of the wrong kind."""


class Unauthorized(MallornError):
    """An API key is needed."""

    status_code = 401
    exit_code = ExitCode.KEY_NEEDED


class Forbidden(MallornError):
    """This API key does not allow the request."""

    status_code = 403
    exit_code = ExitCode.KEY_NEEDED


class NotFound(MallornError):
    """The named resource does not exist here."""

    status_code = 404
    exit_code = ExitCode.NOT_FOUND


class Conflict(MallornError):
    """The present state does not allow this request."""

    status_code = 409
    exit_code = ExitCode.CONFLICT


class TooLarge(MallornError):
    """The upload is larger than this server accepts."""

    status_code = 413
    exit_code = ExitCode.CONFLICT


class HeadTooLarge(MallornError):
    """The address or the headers of the request are larger than this server accepts."""

    status_code = 431


class TooSlow(MallornError):
    """The request arrived too slowly."""

    status_code = 408
    exit_code = ExitCode.TIMED_OUT


class TooMany(MallornError):
    """The request exceeds this owner's quota."""

    status_code = 429
    exit_code = ExitCode.CONFLICT

    def __init__(self, message: str | None = None, *, retry_sec: int = 60, **details: Any) -> None:
        super().__init__(message, **details)
        self.retry_sec: int = retry_sec


class Unavailable(MallornError):
    """A process that the request needs does not answer; try again in a moment."""

    status_code = 503
    exit_code = ExitCode.UNREACHABLE


class StorageFull(MallornError):
    """The disk that holds the data directory is full; free some room, then resume."""

    status_code = 507
    usual_hint = "df -h   (then: mallorn resume JOB)"


class PluginFailed(MallornError):
    """A user's own class, such as a searcher or a cost model, failed."""

    def __init__(self, message: str | None = None, *, seam: str = "", name: str = "", **details: Any) -> None:
        super().__init__(message, **details)
        self.seam = seam
        self.name = name


class HostFault(Unavailable):
    """This host lacks something that every candidate needs; repair it, then resume the job."""

    exit_code = ExitCode.FAILED


class CodeReplaced(Unavailable):
    """The code of this worker was replaced while it ran; restart it."""


class StoreAway(Unavailable):
    """The artifact store does not answer; work that needs it waits."""

    usual_hint = "check MALLORN_ARTIFACTS, and that its disk is mounted or its server runs"


class Unschedulable(MallornError):
    """TVM refuses to schedule this program, and will refuse it again."""


class LeaseLost(MallornError):
    """The lease was taken back or could not be renewed: stop this work."""

    status_code = 409


class InvalidModel(InvalidRequest):
    """The model cannot be imported."""


class InvalidTarget(InvalidRequest):
    """The target is not one Mallorn can compile for."""


class MissingPackage(Unavailable):
    """A package that is needed for this is not installed here."""

    status_code = 501
    exit_code = ExitCode.FAILED


class NoDevice(Unavailable):
    """No device serves this target; start one with `mallorn device`, the job waits for it."""


class JobFailed(MallornError):
    """The job ended without a result."""

    exit_code = ExitCode.JOB_FAILED


class TimedOut(MallornError, TimeoutError):
    """The job did not end within the time limit."""

    exit_code = ExitCode.TIMED_OUT
