"""Jobs without a trial, from the shell: seconds until the service has the job, of the job, and of the stop.

python -m benchmarks.cold FOLDER [NAME ...] [--raw docs/results/cold] [--repeats 3] [--tree OTHER]

Each network is tuned twice by `mallorn tune` on an empty data directory: the first command starts a service
that has just come, which measures its machine, and the second one starts it again. Each command is timed as a
user waits: until it names the job (start), until it prints the result (job), until the prompt is back (stop).
The processor time of all processes of a command tells the same on a busy host, too.
With `--tree` the code of another checkout does the same, in turn with this one's; this interpreter runs both.
A network is one raw file with every run, written at once; the same command again makes what is missing.
A figure of a network is the median of its runs. The first export over what is handed out tells what guesses
two and three of each task earned, in how many seconds. The headline is the median seconds from the shell.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Final

from benchmarks.cells import Cells
from benchmarks.hosts import describe_host
from benchmarks.model_folder import files_of, folder_parser
from benchmarks.oracle.gaps import geometric
from mallorn.core.values.finish_report import FinishReport, InsideTheModel

ROOT: Final = Path(__file__).parents[1]
RAW: Final = Path("docs/results/cold")
COLUMNS: Final = (
    *("network", "tasks", "first, s", "job, s", "again, s", "over onnxruntime"),
    *(
        "first over onnxruntime",
        "first over last",
        "guesses 2 and 3, s",
        "start, s",
        "stop, s",
        "of which, s",
    ),
)
NOW, BEFORE = "now", "before"
FIRST, AGAIN = "first", "again"


@dataclass(frozen=True, slots=True)
class ShellRun:
    """What a user waited for in one command, and the processor time of all its processes, in seconds."""

    start_sec: float
    job_sec: float
    stop_sec: float
    processor_sec: float

    @property
    def total_sec(self) -> float:
        return self.start_sec + self.job_sec + self.stop_sec

    @classmethod
    def median(cls, runs: "Sequence[ShellRun]") -> "ShellRun":
        """Return the median of each part."""
        return cls(*(median(getattr(run, name) for run in runs) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class Row:
    """A network's two jobs; what was not reached, or not measured in earlier runs, is None."""

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
    start_sec: float | None = None
    stop_sec: float | None = None

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
        shell = _told(self.start_sec, 1), _told(self.stop_sec, 1)
        took = f"{self.total_sec:.1f}", f"{self.again_sec:.1f}"
        cells = self.name, self.tasks, first, *took, ratio, *gained, later_sec, *shell, told
        return "| " + " | ".join(map(str, cells)) + " |"


def _told(number: float | None, places: int = 2) -> str:
    return "" if number is None else f"{number:.{places}f}"


def main() -> None:
    """Time what is not timed yet, and print the table."""
    parser = folder_parser(__doc__)
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tree", type=Path, help="another checkout, which is timed in turn with this one")
    args = parser.parse_args()
    files = list(files_of(args))
    trees = {NOW: ROOT} | ({BEFORE: args.tree.resolve()} if args.tree else {})
    cells = Cells(args.raw)
    for path in files:
        if path.stem not in cells:
            row, runs = _time(path.resolve(), trees, args.repeats)
            print(row.markdown, flush=True)
            told = {
                tree: {which: [asdict(run) for run in each] for which, each in of.items()}
                for tree, of in runs.items()
            }
            cells.keep(path.stem, {"row": asdict(row), "runs": told} | describe_host())
    kept = [cells[path.stem] for path in files]
    print(table([Row(**cell["row"]) for cell in kept]))
    print(shell_table({path.stem: cell.get("runs", {}) for path, cell in zip(files, kept, strict=True)}))


Runs = Mapping[str, Mapping[str, Sequence[ShellRun]]]


@dataclass
class Command:
    """A `mallorn tune` that is timed: what it printed, and when."""

    run: ShellRun
    first_sec: float | None  # from the job's name to the first version
    body: dict[str, object] = field(repr=False)


def _time(path: Path, trees: Mapping[str, Path], repeats: int) -> tuple[Row, Runs]:
    runs: dict[str, dict[str, list[ShellRun]]] = {tree: {FIRST: [], AGAIN: []} for tree in trees}
    firsts: list[Command] = []
    for turn in range(repeats):
        for tree in list(trees)[:: -1 if turn % 2 else 1]:
            with tempfile.TemporaryDirectory(prefix="cold-") as home:
                for which in (FIRST, AGAIN):
                    command = tune(trees[tree], path, Path(home))
                    runs[tree][which].append(command.run)
                    if (tree, which) == (NOW, FIRST):
                        firsts.append(command)
    return _row(path.stem, firsts, runs[NOW]), runs


def tune(tree: Path, model: Path, home: Path) -> Command:
    """Time one command by the code of `tree`. Raises SystemExit with what it said if it fails."""
    words = ("tune", str(model), "--trials", "0", "--data", "data", "--out", "won", "--force", "--json")
    env = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-P", "-m", "mallorn", *words]
    started, used_sec = time.monotonic(), _children_sec()
    lines: list[tuple[float, str]] = []
    printed, printed_sec = home / "printed", 0.0
    with (
        printed.open("w") as file,
        subprocess.Popen(
            command, cwd=home, env=env, stdout=file, stderr=subprocess.PIPE, text=True
        ) as process,
    ):

        def note() -> None:
            for line in process.stderr or ():
                lines.append((time.monotonic() - started, line))

        reader = Thread(target=note)
        reader.start()
        while process.poll() is None:
            if not printed_sec and printed.stat().st_size:
                printed_sec = time.monotonic() - started
            time.sleep(0.005)
        total_sec = time.monotonic() - started
        reader.join()
    at = {line.split(maxsplit=1)[0]: sec for sec, line in reversed(lines) if line.strip()}
    if process.returncode or "job" not in at:
        raise SystemExit(f"{tree}: exit code {process.returncode}\n{''.join(line for _, line in lines)}")
    start_sec = at["job"]
    waited = start_sec, printed_sec - start_sec, total_sec - printed_sec
    run = ShellRun(*waited, _children_sec() - used_sec)
    first = at.get("first")
    return Command(run, None if first is None else first - start_sec, json.loads(printed.read_text()))


def _children_sec() -> float:
    """Return the processor time of all processes that this one, or one of them, has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(name: str, firsts: Sequence[Command], runs: Mapping[str, Sequence[ShellRun]]) -> Row:
    """Return the medians of a network's runs, with the report of the last first job."""
    report = FinishReport.model_validate(firsts[-1].body["report"])
    latency = {name: each.median for name, each in report.latency_us.items() if each is not None}
    reached = [each.first_sec for each in firsts if each.first_sec is not None]
    shell = ShellRun.median(runs[FIRST])
    return Row(
        name=name,
        tasks=report.of,
        first_sec=median(reached) if reached else None,
        total_sec=shell.job_sec,
        again_sec=ShellRun.median(runs[AGAIN]).job_sec,
        ratio=latency["tuned"] / latency["onnxruntime"] if len(latency) > 1 else None,
        is_steady=report.steady,
        seconds={name: step.wall for name, step in report.seconds.items()},
        gain=gain_of_guesses(report.inside_the_model),
        guesses_sec=report.inside_the_model.seconds if report.inside_the_model else None,
        start_sec=shell.start_sec,
        stop_sec=shell.stop_sec,
    )


def shell_table(networks: Mapping[str, Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]]) -> str:
    """Return each network's medians from the shell, by code and by job; the last line is the headline."""
    lines = [
        "| network | code | job | start, s | job, s | stop, s | in all, s | processors, s |",
        "|" + 8 * "---|",
    ]
    totals: dict[tuple[str, str], list[float]] = {}
    for name, trees in networks.items():
        for tree, kinds in trees.items():
            for which, runs in kinds.items():
                each = ShellRun.median([ShellRun(**run) for run in runs])
                totals.setdefault((tree, which), []).append(each.total_sec)
                figures = (each.start_sec, each.job_sec, each.stop_sec, each.total_sec, each.processor_sec)
                lines.append(
                    f"| {name} | {tree} | {which} | " + " | ".join(f"{sec:.1f}" for sec in figures) + " |"
                )
    words = [f"{which} {tree} {median(secs):.1f} s" for (tree, which), secs in totals.items()]
    return "\n".join([*lines, "", f"from the shell, medians of {len(networks)}: {', '.join(words)}"])


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
