"""Checks that the models, exports and cost models that the database names exist and are intact."""

import hashlib
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from costmodels.serialization import check_bytes
from db.repositories.stored_files import Repairs, StoredCostModel, StoredFiles
from db.repositories.withdraw_measurements import BusyHours
from db.session import Database
from mallorn.core.artifact_uris import model_uri, open_store
from mallorn.core.errors import InvalidRequest, MallornError

NAMED: Final = 5  # missing or damaged files that are named in one line


class Lacking(MallornError):
    """What rows name is missing or damaged."""


class Flaw(NamedTuple):
    """What is wrong with a file, and whether it exists."""

    words: str
    there: bool


def models(database: Database, artifacts: str) -> str:
    """Check the models' files. Raises Lacking, except for losses that jobs already record."""
    bad = [f"{model_uri(artifacts, each)} {flaw.words}" for each, flaw in flawed_models(database, artifacts)]
    if bad:
        raise Lacking(
            _named(bad),
            hint="submit the same files again: each is put under its name; or mallorn doctor --repair",
        )
    with database.session() as session:
        model_ids = StoredFiles(session).models()
        lost_ids = Repairs(session).lost_models().intersection(model_ids)
    missing_count = sum(not _files(model_uri(artifacts, each)) for each in lost_ids)
    lost = f"; {missing_count} are gone, as their jobs know" if missing_count else ""
    return f"{len(model_ids) - missing_count} models are there, and are what their names say{lost}"


def flawed_models(database: Database, artifacts: str) -> Sequence[tuple[str, Flaw]]:
    """Return models whose files are damaged, or are missing without a record in their jobs."""
    with database.session() as session:
        model_ids, lost_ids = StoredFiles(session).models(), Repairs(session).lost_models()
    flaws = [(each, _flaw(model_uri(artifacts, each), each)) for each in model_ids]
    return [(each, flaw) for each, flaw in flaws if flaw is not None and (flaw.there or each not in lost_ids)]


def exports(database: Database) -> str:
    """Check the jobs' exports. Raises Lacking, naming jobs and paths of missing ones."""
    if bad := [f"{uri} of job {job} is missing" for job, uri in missing_exports(database).items()]:
        raise Lacking(_named(bad), hint="restore `artifacts` from a backup; or mallorn doctor --repair")
    with database.session() as session:
        return f"{len(StoredFiles(session).exports())} jobs have their exports"


def missing_exports(database: Database) -> dict[str, str]:
    """Return the URIs of missing exports, by job id."""
    with database.session() as session:
        uris = StoredFiles(session).exports()
    return {job: uri for job, uri in uris.items() if not _files(uri)}


def times(database: Database) -> str:
    """Check measured times. Raises Lacking for jobs whose times are too long to be plausible."""
    with database.session() as session:
        hours = BusyHours(session).busy_hours()
    bad = [f"{hour.rows} of job {hour.job_id}, {hour.times:.1f} times too long" for hour in hours]
    if bad:
        raise Lacking(
            f"taken while their host was in use: {_named(bad)}",
            hint="mallorn doctor --repair   (marks them as upper bounds, so that they may be measured again)",
        )
    return "no candidate's times disagree beyond noise"


def cost_models(database: Database) -> str:
    """Check active cost models without loading them. Raises Lacking, naming damaged versions."""
    with database.session() as session:
        checked = [(each.name, damaged(each)) for each in StoredFiles(session).cost_models()]
    bad = [f"{name} is damaged" for name, is_damaged in checked if is_damaged]
    if bad:
        raise Lacking(
            _named(bad),
            hint="mallorn costmodels rollback MODEL   (to the version before it), or mallorn doctor --repair",
        )
    return f"{len(checked)} active cost models are whole"


def _flaw(uri: str, model_id: str) -> Flaw | None:
    """Return what is wrong with a model's file. Raises Lacking if this user may not read it."""
    try:
        fs, path = open_store(uri)
        with fs.open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    except FileNotFoundError:
        return Flaw("is missing", there=False)
    except PermissionError:
        raise Lacking(f"{uri} may not be read by user {os.getuid()}", hint=f"ls -l {uri}") from None
    except OSError as error:
        return Flaw(f"cannot be read: {error.strerror or error}", there=True)
    is_same = digest.hexdigest() == model_id
    return None if is_same else Flaw("holds other bytes than its name says", there=True)


def _files(uri: str) -> Sequence[str]:
    fs, path = open_store(uri)
    return list(fs.find(path))


def damaged(version: StoredCostModel) -> bool:
    """Return whether a cost model's bytes are damaged, without loading it."""
    try:
        check_bytes("stored", version.blob)
    except InvalidRequest:
        return True
    return False


def _named(bad: Sequence[str]) -> str:
    suffix = f", and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return "; ".join(bad[:NAMED]) + suffix
