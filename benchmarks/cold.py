"""Jobs without a trial on networks never seen before: seconds to a first answer, to the end, and again.

python -m benchmarks.cold FOLDER [NAME ...] [--raw docs/results/cold]

Each network is tuned twice on a data directory of its own: by a service that has just measured its machine,
and again by the same. A network is one raw file, written at once; a second run makes what is missing. The
first export over what is handed out tells what guesses two and three of each task earned, in how many
seconds. The headline is the median of the seconds to the first export.
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
from mallorn.core.values.finish_report import InsideTheModel

RAW: Final = Path("docs/results/cold")
COLUMNS: Final = (
    *("network", "tasks", "first, s", "job, s", "again, s", "over onnxruntime"),
    *("first over onnxruntime", "first over last", "guesses 2 and 3, s", "of which, s"),
)


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
    gain: float | None = None  # of guesses two and three: the first export over what is handed out
    guesses_sec: float | None = None

    @property
    def first_ratio(self) -> float | None:
        """Of the first export over onnxruntime, as far as two races compare."""
        return None if self.ratio is None or self.gain is None else self.ratio * self.gain

    @property
    def markdown(self) -> str:
        first, later_sec = _told(self.first_sec, 1), _told(self.guesses_sec, 1)
        gained = _told(self.first_ratio), _told(self.gain)
        ratio = _told(self.ratio) + ("" if self.ratio is None or self.is_steady else " ~")
        told = ", ".join(f"{name} {sec:.1f}" for name, sec in self.seconds.items())
        took = f"{self.total_sec:.1f}", f"{self.again_sec:.1f}"
        cells = self.name, self.tasks, first, *took, ratio, *gained, later_sec, told
        return "| " + " | ".join(map(str, cells)) + " |"


def _told(number: float | None, places: int = 2) -> str:
    return "" if number is None else f"{number:.{places}f}"


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
        gain=gain_of_guesses(report.inside_the_model),
        guesses_sec=report.inside_the_model.seconds if report.inside_the_model else None,
    )


def gain_of_guesses(inside: InsideTheModel | None) -> float | None:
    """The model with the likeliest guesses over what is handed out; None where no others were timed."""
    if inside is None:
        return None
    times = inside.latency_us
    return times.before / times.after if inside.taken and times and times.after else 1.0


def table(rows: list[Row]) -> str:
    """All rows, and under them the medians."""
    first = [row.first_sec for row in rows if row.first_sec is not None]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    total, again = (median(getattr(row, name) for row in rows) for name in ("total_sec", "again_sec"))
    gains = [row.gain for row in rows if row.gain is not None]
    later_sec = [row.guesses_sec for row in rows if row.guesses_sec is not None]
    words = (
        f"first export after {median(first or [0.0]):.1f} s, job {total:.1f} s, again {again:.1f} s "
        f"(medians of {len(rows)}); over onnxruntime {geometric(ratios):.2f}, at most {max(ratios):.2f}"
    )
    if gains:
        words += f"; guesses 2 and 3: {geometric(gains):.3f} times as fast, in {median(later_sec):.1f} s"
    return "\n".join(
        [
            "| " + " | ".join(COLUMNS) + " |",
            "|" + len(COLUMNS) * "---|",
            *(row.markdown for row in rows),
            "",
            words,
        ]
    )


if __name__ == "__main__":
    main()
