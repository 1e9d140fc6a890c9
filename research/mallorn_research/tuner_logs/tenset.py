"""Read logs of auto_scheduler, such as TenSet's: one JSON object per line."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.storable_json import compact_json
from mallorn.workers.shared_schedules.read_json_lines import Report, read_lines, require_text, run_times_us
from mallorn_research.tuner_logs.foreign_records import ForeignTrial

FORMAT: Final = "tenset"
# By auto_scheduler's MeasureErrorNo.
OUTCOMES: Final = {
    0: Outcome.OK,
    1: Outcome.BUILD_ERROR,  # the schedule could not be applied
    2: Outcome.BUILD_ERROR,  # host code
    3: Outcome.BUILD_ERROR,  # device code
    4: Outcome.RUN_ERROR,
    5: Outcome.WRONG_RESULT,
    6: Outcome.BUILD_TIMEOUT,
    7: Outcome.RUN_TIMEOUT,
    8: Outcome.RUN_ERROR,  # unknown
}


def read_records(path: Path, report: Report) -> Iterator[ForeignTrial]:
    """Return the records of a file; report and skip lines that cannot be read. Raises
    NotFound if the file does not exist."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint=f"ls {path.parent}")
    return (record for _, record in read_lines(path, _record, report))


def _record(line: Any) -> ForeignTrial:
    (task, target, *_), (_stages, steps) = line["i"]
    costs, code, _all_cost, timestamp = line["r"]
    if code not in OUTCOMES:
        raise ValueError(f"unknown failure code {code!r}")
    outcome = OUTCOMES[code]
    times = run_times_us(costs) if outcome is Outcome.OK else ()
    if outcome is Outcome.OK and not times:
        raise ValueError("the record of a successful run has the time of a failed one")
    if not math.isfinite(timestamp):
        raise ValueError(f"the date of the record is {timestamp!r}, not a finite number")
    return ForeignTrial(
        format=FORMAT,
        task=require_text(task, "task"),
        target=require_text(target, "target"),
        steps=compact_json(steps),
        outcome=outcome,
        failure=str(code) if code else None,
        run_us=times,
        measured_at=float(timestamp),
    )
