"""The export of a job: records for unmodified TVM, a script to apply them, the report."""

import json
import time
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from posixpath import dirname
from typing import Final

from mallorn.core.artifact_uris import export_uri, library_uri, open_artifact
from mallorn.core.errors import MallornError
from mallorn.core.values.finish_report import FinishReport, PointTimes, StoredLibrary
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.core.values.manifest import (
    DATABASE,
    LIBRARY,
    MANIFEST,
    Manifest,
    MeasuredOn,
    ScheduleSet,
    TunedWorkload,
    read_manifest,
)
from mallorn.core.version import VERSION
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.session import read_clock
from mallorn.graphc.export.zip_graphc import ARCHIVE, SCRIPT, write_archive
from mallorn.workers.finish.choose_winner import Winner
from mallorn.workers.finish.shape_dispatch import add_dispatch_rules, choose_dispatch_rules
from mallorn.workers.interfaces.model_compiler import Compiled
from mallorn.workers.process.leased_work import LeasedStage
from mallorn.workers.sandbox.sandbox import FILE_BYTES
from mallorn.workers.sandbox.untrusted_files import copy_out
from mallorn.workers.whole_model.engines import TUNED

# All packages that apply.py and its archive import. onnxruntime, if installed, is for --check.
PACKAGES: Final = ("apache-tvm", "apache-tvm-ffi", "ml_dtypes", "numpy", "onnx", "protobuf")
CHECKER: Final = "onnxruntime"
REQUIREMENTS: Final = "requirements.txt"
REPORT: Final = "report.json"
RECORDS_OF: Final = [each.file(name) for each in ScheduleSet for name in DATABASE]
EXPORTED: Final = frozenset({MANIFEST, REPORT, REQUIREMENTS, SCRIPT, ARCHIVE, *RECORDS_OF})
REQUIREMENTS_HEAD: Final = "# What apply.py runs with: pip install -r requirements.txt"


class ExportFailed(MallornError):
    """A verified schedule could not be written as a tuning record."""


def complete_export(stage: LeasedStage, winners: Sequence[Winner], directory: Path) -> None:
    """Add the manifest, the script apply.py, its archive and requirements to an export."""
    job, graph = stage.job, stage.graph_report
    carried = write_archive(directory)
    with stage.runtime.database.session() as session:
        tasks = [task.name for task in Tasks(session).list(job.id)]
        context_id = Jobs(session).get(job.id, None).context_id
        measured_on = MeasuredOn() if context_id is None else Contexts(session).get(context_id).measured_on
    timing = next((winner.timing for winner in winners if winner.timing is not None), None)
    if context_id is not None and timing is not None:  # times inside the model
        measured_on = MeasuredOn.model_validate(measured_on.model_dump() | {"evaluator": timing})
    workloads = []
    for winner in winners:
        low_us, high_us = winner.interval_us
        workload = TunedWorkload(
            task=winner.contest.task.name,
            workload=winner.contest.program.key,
            weight=winner.contest.task.weight,
            latency_us=winner.latency_us,
            low_us=low_us,
            high_us=high_us,
            max_error=winner.max_error,
        )
        workloads.append(workload)
    dynamic = graph.dynamic
    if dynamic is not None:
        machine = job.machine or assume_typical_cpu(stage.target.num_cores, lanes=1)
        tasks_us = {w.contest.task.name: w.latency_us or w.expected_us or 0.0 for w in winners}
        dynamic = add_dispatch_rules(dynamic, tasks_us, machine.fork_us)
    packages = (*PACKAGES, CHECKER) if find_spec(CHECKER) else PACKAGES
    versions = {name: version(name) for name in packages}
    with_schedule = {winner.contest.task.name for winner in winners}
    manifest = Manifest(
        job=job.id,
        model=job.model_id,
        target=stage.target.attrs,
        tuned_at=time.time(),
        versions={"mallorn": VERSION} | versions,
        recipe=graph.recipe,
        inputs=graph.inputs,
        outputs=graph.outputs,
        input_shapes=stage.options.input_shapes if graph.region else largest_shapes(stage),
        region=graph.region,
        dynamic=dynamic,
        input_ranges=graph.input_ranges,
        workloads=workloads,
        without_schedule=[name for name in tasks if name not in with_schedule],
        measured_on=measured_on,
        mode=stage.options.mode,
        measured_by=stage.measurer_name,
        carried={path.name: sha256(path.read_bytes()).hexdigest() for path in carried},
    )
    _write_manifest(directory, manifest)
    pins = [f"{name}=={number}" for name, number in versions.items()]
    pins += stage.target.hardware.packages
    (directory / REQUIREMENTS).write_text("\n".join([REQUIREMENTS_HEAD, *pins]) + "\n")


def largest_shapes(stage: LeasedStage) -> dict[str, list[int]]:
    """Return the shapes of inputs with free dimensions: those for which the model was tuned
    or, if it was tuned at several sizes, those of the largest size. A region has none."""
    dynamic = stage.graph_report.dynamic
    if stage.graph_report.region is not None:
        return {}
    return stage.options.input_shapes if dynamic is None else dynamic.shapes(dynamic.largest)


def rewrite_dispatch_rules(directory: Path, points: Sequence[PointTimes]) -> None:
    """Rewrite the manifest's rules on which tuned size computes which inputs, by the whole
    model's times; do nothing unless every size was timed.

    The sum of the tasks' times differs from the model's time, since it lacks the time
    between tasks. Sizes are timed one after the other and other load can only lengthen
    runs, so a size's shortest burst of runs counts as its cost. Where a larger size than
    necessary is considered, its longest burst counts.
    """
    manifest = read_manifest(directory / MANIFEST)
    latencies = [point.latency_us.get(TUNED) for point in points]
    bursts = [latency.bursts or [latency.median] for latency in latencies if latency is not None]
    if manifest.dynamic is None or not bursts or len(bursts) < len(manifest.dynamic.points):
        return
    rules = choose_dispatch_rules(manifest.dynamic, [*map(min, bursts)], [*map(max, bursts)])
    dynamic = manifest.dynamic.model_copy(update={"rules": rules})
    _write_manifest(directory, manifest.model_copy(update={"dynamic": dynamic}))


def add_library(directory: Path, library: Path, description: Compiled) -> StoredLibrary:
    """Copy the compiled model into an export, and name it in the manifest. Raises
    TamperedFile if the child process that compiled it left anything but a plain file."""
    digest = copy_out(library.parent, library.name, directory / LIBRARY, FILE_BYTES)
    size_bytes = (directory / LIBRARY).stat().st_size
    stored_library = StoredLibrary(digest=digest, bytes=size_bytes, cpu_features=description.cpu_features)
    manifest = read_manifest(directory / MANIFEST)
    _write_manifest(directory, manifest.model_copy(update={"library": stored_library}))
    return stored_library


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    (directory / MANIFEST).write_text(manifest.model_dump_json(indent=1, ensure_ascii=True) + "\n")


def reserve_export_uri(stage: LeasedStage) -> str:
    """Return the URL of the job's export. If it has none yet, record this one as deleted,
    so that its files are cleaned up if this worker dies early."""
    url = export_uri(stage.runtime.settings.artifacts, stage.job.id, stage.target.key)
    with stage.runtime.database.transaction() as session:
        if Jobs(session).get(stage.job.id, None).export_uri is None:
            Jobs(session).store_report_columns(
                stage.job.id, export_uri=url, export_deleted_at=read_clock(session)
            )
    return url


def upload(stage: LeasedStage, directory: Path, report: FinishReport) -> str:
    """Upload export and report; return the export's URL. Remove the job's earlier library.
    Raises ExportFailed if script or archive do not match their digests."""
    (directory / REPORT).write_text(json.dumps(report.to_stored_json(), indent=1) + "\n")
    manifest = read_manifest(directory / MANIFEST)
    for name, digest in manifest.carried.items():
        if sha256((directory / name).read_bytes()).hexdigest() != digest:
            raise ExportFailed(f"{name} is stored with other bytes", hint=f"mallorn resume {stage.job.id}")
    url = reserve_export_uri(stage)
    with open_artifact(url) as (store, root):
        # The library lies beside the folder, since users download the folder as one archive.
        libraries = dirname(library_uri(root, ""))
        if manifest.library is not None:
            store.makedirs(libraries, exist_ok=True)
            store.put_file(str(directory / LIBRARY), library_uri(root, manifest.library.digest))
        store.makedirs(root, exist_ok=True)
        for path in sorted(path for path in directory.iterdir() if path.name in EXPORTED):
            store.put_file(str(path), f"{root}/{path.name}")
        for path in store.ls(libraries, detail=False) if store.exists(libraries) else ():
            if manifest.library is None or manifest.library.digest not in path:
                store.rm_file(path)
    return url
