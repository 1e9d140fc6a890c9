"""Jobs without a trial on networks never seen before: seconds to a first answer, to the end, and again.

python -m benchmarks.cold FOLDER [NAME ...] [--raw docs/results/cold]

Each network is tuned twice on a data directory of its own: by a service that has just measured its machine,
and again by the same. A network is one raw file, written at once; a second run makes what is missing. The
headline is the median of the seconds to the first export.
"""

import argparse
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.cells import Cells
from benchmarks.fresh import fresh_stack
from benchmarks.hosts import describe_host
from benchmarks.oracle.gaps import geometric
from cli.service.connect_or_start_stack import wait_for_device
from mallorn.client import Client
from mallorn.core.values.event import ExportedEvent

RAW: Final = Path("docs/results/cold")
COLUMNS: Final = "network", "tasks", "first, s", "job, s", "again, s", "over onnxruntime", "of which, s"


@dataclass(frozen=True, slots=True)
class Row:
    """A network's two jobs; what was not reached is None."""

    name: str
    tasks: int
    first_sec: float | None
    total_sec: float
    again_sec: float
    ratio: float | None
    is_steady: bool
    seconds: dict[str, float]

    @property
    def markdown(self) -> str:
        first = "" if self.first_sec is None else f"{self.first_sec:.1f}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}" + ("" if self.is_steady else " ~")
        told = ", ".join(f"{name} {sec:.1f}" for name, sec in self.seconds.items())
        cells = self.name, self.tasks, first, f"{self.total_sec:.1f}", f"{self.again_sec:.1f}", ratio, told
        return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Time what is not timed yet, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="files without their ending; all by default")
    parser.add_argument("--raw", type=Path, default=RAW)
    args = parser.parse_args()
    files = [path for path in sorted(args.folder.glob("*.onnx")) if not args.names or path.stem in args.names]
    cells = Cells(args.raw)
    for path in files:
        if path.stem not in cells:
            row = _time(path)
            print(row.markdown, flush=True)
            cells.keep(path.stem, {"row": asdict(row)} | describe_host())
    print(table([Row(**cells[path.stem]["row"]) for path in files]))


def _time(path: Path) -> Row:
    with tempfile.TemporaryDirectory(prefix="cold-") as data, fresh_stack(Path(data)) as stack:
        wait_for_device(stack)
        return _jobs(stack.api, path)


def _jobs(api: Client, path: Path) -> Row:
    took = []
    for _ in range(2):
        started = time.monotonic()
        job = api.tune(path, trials=0)
        events = list(job.events())
        job.wait()
        took.append((time.monotonic() - started, job, events))
    (total_sec, job, events), (again_sec, _, _) = took
    report = job.status.finish_report
    latency = {name: each.median for name, each in report.latency_us.items() if each is not None}
    return Row(
        name=path.stem,
        tasks=len(job.tasks()),
        first_sec=next((told.sec for each in events if isinstance(told := each.told, ExportedEvent)), None),
        total_sec=total_sec,
        again_sec=again_sec,
        ratio=latency["tuned"] / latency["onnxruntime"] if len(latency) > 1 else None,
        is_steady=report.steady,
        seconds={name: step.wall for name, step in report.seconds.items()},
    )


def table(rows: list[Row]) -> str:
    """All rows, and under them the medians."""
    first = [row.first_sec for row in rows if row.first_sec is not None]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    total, again = (median(getattr(row, name) for row in rows) for name in ("total_sec", "again_sec"))
    words = (
        f"first export after {median(first or [0.0]):.1f} s, job {total:.1f} s, again {again:.1f} s "
        f"(medians of {len(rows)}); over onnxruntime {geometric(ratios):.2f}, at most {max(ratios):.2f}"
    )
    return "\n".join(
        ["| " + " | ".join(COLUMNS) + " |", "|" + 7 * "---|", *(row.markdown for row in rows), "", words]
    )


if __name__ == "__main__":
    main()
