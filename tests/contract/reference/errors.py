"""The page of errors: exit codes of the command line, and the classes that Python programs catch."""

from typing import Final

from mallorn import errors
from mallorn.core.errors import ExitCode, MallornError
from tests.contract.reference.markdown import code, described, page, table

WORDS: Final = (
    "A command ends with one of these exit codes, by the class of its error:",
    "",
)
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
    codes = [(code(int(each)), each.text) for each in ExitCode]
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
