"""Recorded tuning curves in one Parquet file: a row a round, and what each cell was measured on."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA: Final = pa.schema(
    [
        ("model", pa.string()),
        ("seed", pa.int32()),
        ("task", pa.int32()),
        ("name", pa.string()),
        ("op", pa.string()),
        ("structure", pa.string()),
        ("weight", pa.int32()),
        ("flops", pa.float64()),
        ("index", pa.int32()),
        ("round", pa.int32()),
        ("trials", pa.int32()),
        ("size", pa.int32()),
        ("best_us", pa.float64()),
        ("failures", pa.int32()),
        ("seconds", pa.float64()),
        ("started_at", pa.float64()),
        ("candidates_us", pa.list_(pa.float64())),
    ]
)
CELLS: Final = b"cells"  # metadata: a JSON object, facts by cell


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """One round of a task, as the service ran it."""

    model: str
    seed: int
    task: int
    name: str
    op: str
    structure: str
    weight: int
    flops: float
    index: int  # among all rounds of the job
    round: int  # among the rounds of its task
    trials: int  # of its task so far, this round's included
    size: int  # as planned; fewer candidates mean that the searcher found no more
    best_us: float | None
    failures: int
    seconds: float
    started_at: float
    candidates_us: tuple[float | None, ...]  # in the order they were proposed; None: it failed


@dataclass(frozen=True, slots=True)
class Cell:
    """One recording: a model tuned once."""

    model: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.model}/{self.seed}"


class CurveFile:
    """The file at `path`, which need not be there yet. A cell is on disk once `add` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def facts(self) -> dict[str, dict[str, Any]]:
        """What each cell was measured on, by `Cell.key`."""
        if not self.path.exists():
            return {}
        from mallorn_research.replay.recording_file import facts_of

        return facts_of(self.path, CELLS)

    def rounds(self) -> list[RecordedRound]:
        """All rounds of all cells, in the order they were planned within a cell."""
        if not self.path.exists():
            return []
        rows = pq.read_table(self.path).to_pylist()
        return [RecordedRound(**row | {"candidates_us": tuple(row["candidates_us"])}) for row in rows]

    def add(self, cell: Cell, rounds: Iterable[RecordedRound], facts: Mapping[str, Any]) -> None:
        """Store a cell in place of what was stored of it before."""
        kept = [row for row in self.rounds() if Cell(row.model, row.seed) != cell]
        known = self.facts() | {cell.key: dict(facts)}
        rows = sorted([*kept, *rounds], key=lambda row: (row.model, row.seed, row.index))
        from mallorn_research.replay.recording_file import write_rows

        write_rows(self.path, SCHEMA, [asdict(row) for row in rows], CELLS, known)


assert [field.name for field in fields(RecordedRound)] == SCHEMA.names
