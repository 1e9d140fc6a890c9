"""Reads an export of `mallorn tune`: its schedules become foreign measurements of this dataset."""

from pathlib import Path
from typing import Final

from db.session import Database
from mallorn.core.errors import InvalidRequest
from mallorn.core.states import SEARCH
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import MANIFEST, RECORDS, read_manifest
from research.foreign.lines import LoadedLog, Problem, Report
from research.foreign.rows import Provenance, named, store_records
from workers.faces.graphs import Graphs

ORIGIN: Final = "export"


def load_export(database: Database, directory: Path, report: Report) -> LoadedLog:
    """Store an export's schedules unless they are here. Raises InvalidRequest for an invalid manifest."""
    manifest = read_manifest(directory / MANIFEST)
    if manifest.mode != SEARCH:
        raise InvalidRequest(
            f"the schedules in {directory} are {manifest.mode}: nobody has measured them",
            hint="mallorn tune MODEL   (measures what is known, and exports that)",
        )
    with Graphs() as graphs:
        found = graphs.read_export(str(directory), parse_target(manifest.target).text)
    for bad in found.problems:
        report(Problem(str(directory / bad.file), bad.line, bad.error))
    tuned_at = manifest.tuned_at or (directory / RECORDS).stat().st_mtime
    log = Provenance(named(f"mallorn:{manifest.job}"), ORIGIN, tuned_at, manifest.measured_on)
    names = {entry.workload: entry.task for entry in manifest.workloads}
    with database.transaction() as session:
        added = store_records(session, found, lambda _: log, names)
    return LoadedLog(added, len(found.records) - added, len(found.problems))
