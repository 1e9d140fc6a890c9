"""Measurements as JSON lines, one a candidate: what `replay` answers from."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.outcomes import Outcome
from workers.device.endpoint import Endpoint
from workers.measure.base import Result

Recording = Mapping[tuple[str, str], Result]  # (Program.key, Candidate.key) -> what became of it, slot 0


def load_recording(path: Path) -> Recording:
    """Read a recording. Raises NotFound without the file, InvalidRequest naming the first bad line."""
    if not path.is_file():
        raise NotFound(f"there is no recording at {path}", hint=f"ls {path.parent}")
    results: dict[tuple[str, str], Result] = {}
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                program, candidate, result = _parse(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidRequest(f"{path}, line {number} is not a measurement: {error!r}") from None
            results[program, candidate] = result
    return results


def append_result(path: Path, program: str, candidate: str, result: Result) -> None:
    """Add one measurement to a recording, which begins with its first."""
    fields = {name: value for name, value in asdict(result).items() if name != "slot"}
    with path.open("a") as lines:
        lines.write(json.dumps({"program": program, "candidate": candidate, **fields}) + "\n")


def _parse(row: Any) -> tuple[str, str, Result]:
    if not isinstance(row, dict):
        raise TypeError("not an object")
    endpoint = row.get("endpoint")
    result = Result(
        slot=0,
        outcome=Outcome(row["outcome"]),
        run_us=tuple(float(value) for value in row["run_us"]),
        error=str(row.get("error", "")),
        build_ms=row.get("build_ms"),
        run_ms=row.get("run_ms"),
        endpoint=Endpoint(**endpoint) if endpoint else None,
    )
    return str(row["program"]), str(row["candidate"]), result
