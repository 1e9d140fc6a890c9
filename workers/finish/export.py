"""The directory a user takes away: logs that stock TVM loads, how to apply them, and the report."""

import json
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import fsspec

from mallorn.core.artifacts import export_uri
from mallorn.core.errors import MallornError
from mallorn.core.version import VERSION
from workers.children.child import Child
from workers.finish.winners import Winner
from workers.stage import Stage

WRITE_TIMEOUT_SEC: Final = 300.0
# apply.py, the graph passes that it has beyond TVM's, and what they share.
TEMPLATES: Final = Path(str(files("workers.tvm.templates")))
SCRIPTS: Final = tuple(sorted(path.stem for path in TEMPLATES.glob("[a-z]*.py")))
PACKAGES: Final = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx")


class ExportFailed(MallornError):
    """A verified schedule could not be written as a tuning record."""


def write_records(claimed: Stage, winners: Sequence[Winner], graphs: Child, directory: Path) -> None:
    """Write the logs that TVM loads; one directory holds one target's schedules. Raises ExportFailed."""
    written = graphs.call(
        "write_database",
        WRITE_TIMEOUT_SEC,
        directory=str(directory),
        target=claimed.target.text,
        records=[_record(winner) for winner in winners],
    )
    if written["skipped"]:
        raise ExportFailed(
            f"{len(written['skipped'])} schedules do not rebuild: {written['skipped'][0]['error']}"
        )


def complete_export(claimed: Stage, winners: Sequence[Winner], directory: Path) -> None:
    """Put the manifest and the scripts beside the logs."""
    (directory / "manifest.json").write_text(json.dumps(_manifest(claimed, winners), indent=1) + "\n")
    for name in SCRIPTS:
        shutil.copyfile(TEMPLATES / f"{name}.py", directory / f"{name}.py")


def upload(claimed: Stage, directory: Path) -> str:
    """Put the directory into the artifact store; its URL."""
    url = export_uri(claimed.runtime.settings.artifacts, claimed.job.id, claimed.target.key)
    store, root = fsspec.url_to_fs(url)
    store.makedirs(root, exist_ok=True)
    for path in sorted(directory.iterdir()):
        store.put_file(str(path), f"{root}/{path.name}")
    return url


def _record(winner: Winner) -> dict[str, Any]:
    return {
        "tir": winner.contest.program.tir,
        "trace": winner.trace,
        "run_secs": [time / 1e6 for time in winner.run_us],
    }


def _manifest(claimed: Stage, winners: Sequence[Winner]) -> dict[str, Any]:
    graph = claimed.job.graph or {}
    return {
        "job": claimed.job.id,
        "model": claimed.job.model_id,
        "target": claimed.target.attrs,
        "versions": {"mallorn": VERSION} | {name: version(name) for name in PACKAGES},
        "recipe": graph["recipe"],
        "input_shapes": claimed.options.input_shapes,
        "input_ranges": graph["input_ranges"],
        "workloads": [
            {
                "task": winner.contest.task.name,
                "workload": winner.contest.program.key,
                "weight": winner.contest.task.weight,
                "latency_us": winner.latency_us,
                "low_us": winner.low_us,
                "high_us": winner.high_us,
                "max_error": winner.max_error,
            }
            for winner in winners
        ],
    }
