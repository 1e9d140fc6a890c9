"""Jobs without trials, from the shell: seconds to start the service, run the job, and stop.

python -m benchmarks.cold FOLDER [NAME ...] [--raw docs/results/cold] [--repeats 3] [--tree OTHER]

Each network is tuned twice by `mallorn tune` on an empty data directory: the first command
starts a new service, which measures its machine, the second starts it again. A user waits
until the job has a name (start), until the result is printed (job), until the prompt is back
(stop). Processor time of all a command's processes depends less on other load. With `--tree`,
the code of another checkout runs in turn with this one's, in the same interpreter. Each
network is one raw file with all runs, written at once; a second run adds missing ones. Figures
are medians over runs. The gain of guesses two and three is the first export's latency over the
final one's. The headline is the median seconds from the shell.
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
from mallorn.core.values.finish_report import FinishReport, ModelContests

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
    """Seconds that a user waited in one command, and processor seconds of its processes."""

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
    """Figures of a network's two jobs; None if not reached or not measured by an older run."""

    name: str
    tasks: int
    first_sec: float | None
    total_sec: float
    again_sec: float
    ratio: float | None
    is_steady: bool
    seconds: dict[str, float]
    gain: float | None = None  # of guesses two and three: first export over final
    guesses_sec: float | None = None
    start_sec: float | None = None
    stop_sec: float | None = None

    @property
    def first_ratio(self) -> float | None:
        """Latency of the first export over onnxruntime, a product of two ratios."""
        return None if self.ratio is None or self.gain is None else self.ratio * self.gain

    @property
    def markdown(self) -> str:
        first, later_sec = _format(self.first_sec, 1), _format(self.guesses_sec, 1)
        gained = _format(self.first_ratio), _format(self.gain)
        ratio = _format(self.ratio) + ("" if self.ratio is None or self.is_steady else " ~")
        steps = ", ".join(f"{name} {sec:.1f}" for name, sec in self.seconds.items())
        shell = _format(self.start_sec, 1), _format(self.stop_sec, 1)
        took = f"{self.total_sec:.1f}", f"{self.again_sec:.1f}"
        cells = self.name, self.tasks, first, *took, ratio, *gained, later_sec, *shell, steps
        return "| " + " | ".join(map(str, cells)) + " |"


def _format(number: float | None, places: int = 2) -> str:
    return "" if number is None else f"{number:.{places}f}"


def main() -> None:
    """Time the networks that have no raw file yet, and print the tables."""
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
            stored_runs = {
                tree: {which: [asdict(run) for run in each] for which, each in of.items()}
                for tree, of in runs.items()
            }
            cells.keep(path.stem, {"row": asdict(row), "runs": stored_runs} | describe_host())
    stored = [cells[path.stem] for path in files]
    print(table([Row(**cell["row"]) for cell in stored]))
    print(shell_table({path.stem: cell.get("runs", {}) for path, cell in zip(files, stored, strict=True)}))


Runs = Mapping[str, Mapping[str, Sequence[ShellRun]]]


@dataclass
class Command:
    """A timed `mallorn tune`: its times and the JSON that it printed."""

    run: ShellRun
    first_sec: float | None  # seconds from the job's name to its first export
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
    """Time one command of `tree`'s code. Raises SystemExit with its output if it fails."""
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

        def read_lines() -> None:
            for line in process.stderr or ():
                lines.append((time.monotonic() - started, line))

        reader = Thread(target=read_lines)
        reader.start()
        while process.poll() is None:
            if not printed_sec and printed.stat().st_size:
                printed_sec = time.monotonic() - started
            time.sleep(0.005)
        total_sec = time.monotonic() - started
        reader.join()
    times = {line.split(maxsplit=1)[0]: sec for sec, line in reversed(lines) if line.strip()}
    if process.returncode or "job" not in times:
        raise SystemExit(f"{tree}: exit code {process.returncode}\n{''.join(line for _, line in lines)}")
    start_sec = times["job"]
    parts = start_sec, printed_sec - start_sec, total_sec - printed_sec
    run = ShellRun(*parts, _children_sec() - used_sec)
    first = times.get("first")
    return Command(run, None if first is None else first - start_sec, json.loads(printed.read_text()))


def _children_sec() -> float:
    """Return processor seconds of all terminated descendants that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(name: str, firsts: Sequence[Command], runs: Mapping[str, Sequence[ShellRun]]) -> Row:
    """Return the medians of a network's runs, with the report of the last first job."""
    report = FinishReport.model_validate(firsts[-1].body["report"])
    latency = {name: each.median for name, each in report.latency_us.items() if each is not None}
    firsts_sec = [each.first_sec for each in firsts if each.first_sec is not None]
    shell = ShellRun.median(runs[FIRST])
    return Row(
        name=name,
        tasks=report.workload_count,
        first_sec=median(firsts_sec) if firsts_sec else None,
        total_sec=shell.job_sec,
        again_sec=ShellRun.median(runs[AGAIN]).job_sec,
        ratio=latency["tuned"] / latency["onnxruntime"] if len(latency) > 1 else None,
        is_steady=report.is_undisturbed,
        seconds={name: step.wall for name, step in report.seconds.items()},
        gain=gain_of_guesses(report.model_contests),
        guesses_sec=report.model_contests.seconds if report.model_contests else None,
        start_sec=shell.start_sec,
        stop_sec=shell.stop_sec,
    )


def shell_table(networks: Mapping[str, Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]]) -> str:
    """Return a table of each network's medians by code and job; the headline is last."""
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


def gain_of_guesses(inside: ModelContests | None) -> float | None:
    """Return the latency with first guesses over the final one; None if not timed."""
    if inside is None:
        return None
    times = inside.latency_us
    return times.before / times.after if inside.uses_replacements and times and times.after else 1.0


def table(rows: list[Row]) -> str:
    """Return all rows as a Markdown table, followed by their medians."""
    first = [row.first_sec for row in rows if row.first_sec is not None]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    total, rerun = (median(getattr(row, name) for row in rows) for name in ("total_sec", "again_sec"))
    gains = [row.gain for row in rows if row.gain is not None]
    later_sec = [row.guesses_sec for row in rows if row.guesses_sec is not None]
    words = (
        f"first export after {median(first or [0.0]):.1f} s, job {total:.1f} s, again {rerun:.1f} s "
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
