"""The page of errors: exit codes of the command line, and the classes that Python programs catch."""

from typing import Final

from mallorn import errors
from mallorn.core.errors import ExitCode, MallornError
from tests.contract.reference.markdown import code, described, page, table

WORDS: Final = (
    "A command ends with one of these exit codes, by the class of its error:",
    "",
)
CODES: Final = {
    ExitCode.FAILED: "Something failed that has no code of its own.",
    ExitCode.USAGE: "The command or the request is wrong: change it.",
    ExitCode.NOT_FOUND: "There is no such job, model or other thing.",
    ExitCode.KEY_NEEDED: "The service refuses the request: it needs a key, or a key with other scopes.",
    ExitCode.CONFLICT: "The state does not allow this, a limit is reached, or it would overwrite files.",
    ExitCode.UNREACHABLE: "A service, a device or another part does not answer: try again later.",
    ExitCode.TIMED_OUT: "The time limit passed first.",
    ExitCode.JOB_FAILED: "The job failed, was cancelled, or is stuck.",
    ExitCode.CHECK_FAILED: "A check found a fault: wrong numbers, damage, or a machine that lacks something.",
    ExitCode.NOT_APPLIED: "`mallorn verify`: a workload of the model has no schedule that applies.",
    ExitCode.SLOWER: "`mallorn verify`: the model is slower than `--tolerance` allows.",
    ExitCode.INTERRUPTED: "Ctrl-C.",
}
#: What the client and `mallorn.tune` raise.
CAUGHT: Final = (
    *("MallornError", "InvalidRequest", "InvalidModel", "InvalidTarget", "NotFound", "Unauthorized"),
    *("Forbidden", "Conflict", "TooLarge", "TooMany", "Unavailable", "NoDevice", "TimedOut", "JobFailed"),
    *("MissingPackage", "StorageFull"),
)
JSON_WORDS: Final = (
    "With `--json`, the last line of stderr is one JSON object. stdout holds data only.",
    "",
    "```json",
    '{"kind": "NotFound", "message": "there is no job 7d15", "hint": "mallorn jobs", "exit_code": 3}',
    "```",
    "",
    "`request_id` is there if a service answered with one: its log has the same.",
    "",
    "In Python, `mallorn.errors` has the classes. Each has `message`, `hint` (the next command to type) and",
    "`exit_code`; all are `MallornError`.",
    "",
    "```python",
    "import mallorn",
    "",
    "try:",
    '    mallorn.Client().job("7d15").wait(timeout_sec=600)',
    "except mallorn.errors.JobFailed as error:",
    "    print(error.message, error.hint)",
    "```",
    "",
)


def errors_page() -> str:
    """Exit codes, the errors as JSON, and the classes with their codes and statuses."""
    codes = [(code(int(each)), described(each.name, CODES.get(each))) for each in ExitCode]
    rows = [
        (
            code(found.__name__),
            code(int(found.exit_code)),
            code(found.status_code) if found.status_code != MallornError.status_code else "",
            described(found.__name__, found.__doc__),
        )
        for found in (getattr(errors, name) for name in CAUGHT)
    ]
    return page(
        "Exit codes and errors",
        *WORDS,
        *table(["exit code", "meaning"], [(code(0), "All went well."), *codes]),
        *JSON_WORDS,
        *table(["class", "exit code", "HTTP status", "meaning"], rows),
    )
