"""Jobs on many networks: which come in, which are right, how fast they are beside onnxruntime.

python -m benchmarks.zoo FOLDER [NAME ...] [--trials 0] [--raw docs/results/zoo] [--data DIR]

FOLDER holds ONNX files; benchmarks/zoo/torch_side writes those of torchvision, timm and transformers. Each
network is one job of a service on a data directory of its own, and its figures are of its report: the model
as it is handed out and onnxruntime, timed in turn. A finished network is one raw file, written at once; a
second run makes what is missing, and reports on all that is there. The headline is the share that comes in
and is right.
"""

import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.cells import Cells
from benchmarks.fresh import fresh_stack
from benchmarks.hosts import describe_host
from benchmarks.model_folder import files_of, folder_parser
from benchmarks.zoo.row import Row, table
from mallorn.client.coordinator_client import Client
from mallorn.client.job import Job
from mallorn.core.errors import MallornError
from mallorn_research.commands.wait_until_tuned import wait_for_device

RAW: Final = Path("docs/results/zoo")
POLL_SEC: Final = 0.2
IMPORTED: Final = ("tuning", "finishing", "done")


def main() -> None:
    """Score what is not scored yet, and print the table."""
    parser = folder_parser(__doc__)
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--data", type=Path, help="a data directory to keep")
    args = parser.parse_args()
    files = list(files_of(args))
    cells = Cells(args.raw)
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        _score(files, args.trials, cells, args.data or Path(scratch))
    known = [cells[_cell(path, args.trials)]["row"] for path in files]
    print(table([Row(**row) for row in known]))


def _cell(path: Path, trials: int) -> str:
    return f"{path.stem}_{trials}"


def _score(files: list[Path], trials: int, cells: Cells, data: Path) -> None:
    missing = [path for path in files if _cell(path, trials) not in cells]
    if not missing:
        return
    with fresh_stack(data) as stack:
        wait_for_device(stack)
        for path in missing:
            row = _row(stack.api, path, trials)
            print(row.markdown, flush=True)
            cells.keep(_cell(path, trials), {"row": asdict(row)} | describe_host())


def _row(api: Client, path: Path, trials: int) -> Row:
    started = time.monotonic()
    try:
        job = api.submit(path, trials=trials)
        import_sec = _import_sec(job)
        job.wait()
        job.raise_for_state()
    except MallornError as error:
        return Row(path.stem, trials, refused=error.message)
    status, report = job.status, job.status.report
    if status.graph is None or report is None:
        return Row(path.stem, trials, refused=status.explanation)
    latency = {engine: timed.median for engine, timed in report.latency_us.items() if timed is not None}
    return Row(
        path.stem,
        trials,
        nodes=sum(status.graph.onnx_operators.values()),
        tasks=len(job.tasks()),
        import_sec=import_sec,
        finish_sec=report.finish_sec,
        total_sec=time.monotonic() - started,
        error=report.error_vs_onnxruntime,
        ours_us=latency.get("tuned"),
        onnxruntime_us=latency.get("onnxruntime"),
        is_steady=report.is_undisturbed,
        not_done=[each.step for each in report.skipped_steps],
    )


def _import_sec(job: Job) -> float | None:
    """From now until its tasks are known."""
    started = time.monotonic()
    while job.refresh().state not in IMPORTED and not job.state.is_final:
        time.sleep(POLL_SEC)
    return time.monotonic() - started if job.state in IMPORTED else None


if __name__ == "__main__":
    main()
