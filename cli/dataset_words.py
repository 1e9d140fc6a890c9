"""The dataset's numbers as tables."""

from typing import Any, Final

from cli.terminal.output import print_json, print_note, stdout, table

KINDS: Final = {
    "targets": "TARGET",
    "operators": "OPERATOR",
    "models": "MODEL",
    "outcomes": "OUTCOME",
    "foreign": "FROM LOGS OF",
}
DAY_COLUMNS: Final = {"day": "DAY", "count": "MEASUREMENTS", "total": "IN ALL"}
SHOWN: Final = 20  # of a kind; a program reads all with --json


def print_statistics(found: dict[str, Any], as_json: bool) -> None:
    """Print what was counted, as one JSON document or as a table a kind."""
    if as_json:
        print_json(found)
        return
    if not found["measurements"] and not found["foreign"]:
        print_note("no measurements yet; make some with   mallorn tune model.onnx")
        return
    console = stdout()
    console.print(_in_all(found))
    for kind, heading in KINDS.items():
        if found[kind]:
            _print_kind(found[kind], heading)
    if found["days"]:
        console.print()
        console.print(table(found["days"][-SHOWN:], DAY_COLUMNS))


def _in_all(found: dict[str, Any]) -> str:
    words = f"{found['measurements']:,} measurements of {found['workloads']:,} workloads"
    return f"{words}, {found['imported']:,} of them imported" if found["imported"] else words


def _print_kind(counts: list[dict[str, Any]], heading: str) -> None:
    rest = counts[SHOWN:]
    rows = counts[:SHOWN]
    if rest:
        others = sum(each["count"] for each in rest)
        rows = [*rows, {"name": f"({len(rest)} others)", "count": others}]
    console = stdout()
    console.print()
    console.print(table(rows, {"name": heading, "count": "MEASUREMENTS"}))
