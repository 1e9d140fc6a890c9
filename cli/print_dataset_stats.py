"""The dataset's numbers as tables."""

from typing import Final

from cli.terminal.output import print_json, print_note, stdout, table
from mallorn.core.values.dataset import DatasetStats, DayCount, NamedCount
from mallorn.wording.format_values import Column

DAY_COLUMNS: Final = (
    Column[DayCount]("DAY", lambda day: day.day.isoformat()),
    Column[DayCount]("MEASUREMENTS", lambda day: day.count),
    Column[DayCount]("IN ALL", lambda day: day.total),
)
SHOWN: Final = 20  # of a kind; a program reads all with --json


def print_statistics(found: DatasetStats, as_json: bool) -> None:
    """Print what was counted, as one JSON document or as a table a kind."""
    if as_json:
        print_json(found)
        return
    if not found.measurements and not found.foreign:
        print_note("no measurements yet; make some with   mallorn tune model.onnx")
        return
    console = stdout()
    imported = f", {found.imported:,} of them imported" if found.imported else ""
    console.print(f"{found.measurements:,} measurements of {found.workloads:,} workloads{imported}")
    kinds = {
        "TARGET": found.targets,
        "OPERATOR": found.operators,
        "MODEL": found.models,
        "OUTCOME": found.outcomes,
        "FROM LOGS OF": found.foreign,
    }
    for heading, counts in kinds.items():
        if counts:
            _print_kind(counts, heading)
    if found.days:
        console.print()
        console.print(table(found.days[-SHOWN:], DAY_COLUMNS))


def _print_kind(counts: list[NamedCount], heading: str) -> None:
    rows, rest = counts[:SHOWN], counts[SHOWN:]
    if rest:
        others = sum(each.count for each in rest)
        rows = [*rows, NamedCount(name=f"({len(rest)} others)", count=others)]
    columns = (
        Column[NamedCount](heading, lambda each: each.name),
        Column[NamedCount]("MEASUREMENTS", lambda each: each.count),
    )
    console = stdout()
    console.print()
    console.print(table(rows, columns))
