"""Layout of a schedules folder: a MetaSchedule JSON database per target and operator.

    llvm-znver4-2.4698dce24e19/
        target.json
        conv2d/
            database_workload.json          as stock MetaSchedule reads it
            database_tuning_record.json
            database_provenance.json        a line per record: dataset, searcher, host, time

Files are sorted and hold no time of writing, so the same records give the same bytes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.storable_json import read_json
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.base import Value
from mallorn.core.values.manifest import MANIFEST, RECORDS, MeasuredOn, read_manifest
from mallorn.wording.format_values import file_name

PROVENANCE: Final = "database_provenance.json"
TARGET: Final = "target.json"
EXAMPLE: Final = "mallorn schedules export DIR   (makes one)"


class SharedRecord(Value):
    """A line of `database_provenance.json`: where, when and how a record was measured."""

    dataset: str
    row: int
    created_at: float
    origin: str
    name: str  # of the workload
    measured_on: MeasuredOn


def directory_of(root: Path, target: Target) -> Path:
    """Return the directory of a target, named by kind, processor, cores and key."""
    attrs = target.attrs
    parts = target.kind, attrs.get("mcpu") or attrs.get("arch") or attrs.get("tag"), attrs.get("num-cores")
    label = "-".join(str(part).replace("/", "-") for part in parts if part)
    return root / file_name(label, f".{target.key}")


def write_target(directory: Path, target: Target) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / TARGET).write_text(json.dumps(target.attrs, indent=1, sort_keys=True) + "\n")


def iterate_databases(root: Path) -> Iterator[tuple[Target, Path]]:
    """Yield every database under `root` with its target, which a `target.json` above it or the
    manifest of a job's export names. Raises NotFound if there is none."""
    files = sorted(file for name in (TARGET, MANIFEST) for file in root.rglob(name))
    if not files:
        raise NotFound(f"{root} is not a folder of schedules: there is no {TARGET} in it", hint=EXAMPLE)
    for file in files:
        text = read_manifest(file).target if file.name == MANIFEST else file.read_text(errors="replace")
        target = parse_target(text)
        yield from ((target, records.parent) for records in sorted(file.parent.rglob(RECORDS)))


def write_provenance(directory: Path, lines: list[SharedRecord]) -> None:
    texts = [json.dumps(line.model_dump(mode="json"), sort_keys=True) for line in lines]
    write_lines(directory / PROVENANCE, texts)


def write_lines(file: Path, lines: list[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), newline="\n")


def read_provenance(directory: Path) -> list[SharedRecord]:
    """Return a database's provenance lines. Raises InvalidRequest if missing or invalid."""
    file = directory / PROVENANCE
    try:
        return [SharedRecord.model_validate(read_json(line)) for line in file.read_text().splitlines()]
    except (OSError, ValueError) as error:
        problem = "is missing" if isinstance(error, OSError) else "cannot be read"
        raise InvalidRequest(f"{file} {problem}", hint=EXAMPLE) from None
