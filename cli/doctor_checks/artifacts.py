"""Is there, and whole, what rows name: models, exports, cost models?"""

import hashlib
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from costmodels.serialization import check_bytes
from db.repositories.busy_hours import BusyHours
from db.repositories.stored_and_lost_files import Repairs, StoredCostModel, StoredFiles
from db.session import Database
from mallorn.core.artifact_uris import model_uri, open_store
from mallorn.core.errors import InvalidRequest, MallornError

NAMED: Final = 5  # of those that are missing or damaged, in one line


class Lacking(MallornError):
    """What rows name is missing or damaged."""


class Flaw(NamedTuple):
    """What is wrong with a file."""

    words: str
    there: bool


def models(database: Database, artifacts: str) -> str:
    """Raises Lacking, naming the files; not for those whose jobs were told that they are gone."""
    bad = [f"{model_uri(artifacts, each)} {flaw.words}" for each, flaw in flawed_models(database, artifacts)]
    if bad:
        raise Lacking(
            _named(bad),
            hint="submit the same files again: each is put under its name; or mallorn doctor --repair",
        )
    with database.session() as session:
        known = StoredFiles(session).models()
        told = Repairs(session).lost_models().intersection(known)
    gone = sum(not _files(model_uri(artifacts, each)) for each in told)
    lost = f"; {gone} are gone, as their jobs know" if gone else ""
    return f"{len(known) - gone} models are there, and are what their names say{lost}"


def flawed_models(database: Database, artifacts: str) -> Sequence[tuple[str, Flaw]]:
    """Models whose files are damaged, or missing without their jobs being told."""
    with database.session() as session:
        known, told = StoredFiles(session).models(), Repairs(session).lost_models()
    looked = [(each, _flaw(model_uri(artifacts, each), each)) for each in known]
    return [(each, flaw) for each, flaw in looked if flaw is not None and (flaw.there or each not in told)]


def exports(database: Database) -> str:
    """Raises Lacking, naming jobs and places."""
    if bad := [f"{uri} of job {job} is missing" for job, uri in missing_exports(database).items()]:
        raise Lacking(_named(bad), hint="restore `artifacts` from a backup; or mallorn doctor --repair")
    with database.session() as session:
        return f"{len(StoredFiles(session).exports())} jobs have their exports"


def missing_exports(database: Database) -> dict[str, str]:
    """Where exports lay that are not there, by job."""
    with database.session() as session:
        known = StoredFiles(session).exports()
    return {job: uri for job, uri in known.items() if not _files(uri)}


def times(database: Database) -> str:
    """Raises Lacking, naming the jobs whose times are too long to be true."""
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
    """Raises Lacking, naming the versions; nothing of them is loaded."""
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
    """What is wrong with a model's file. Raises Lacking for one that this user may not read."""
    try:
        fs, path = open_store(uri)
        with fs.open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256")
    except FileNotFoundError:
        return Flaw("is missing", there=False)
    except PermissionError:
        raise Lacking(f"{uri} may not be read by user {os.getuid()}", hint=f"ls -l {uri}") from None
    except OSError as error:
        return Flaw(f"cannot be read: {error.strerror or error}", there=True)
    same = found.hexdigest() == model_id
    return None if same else Flaw("holds other bytes than its name says", there=True)


def _files(uri: str) -> Sequence[str]:
    fs, path = open_store(uri)
    return list(fs.find(path))


def damaged(version: StoredCostModel) -> bool:
    """Whether the bytes of a cost model are not as they were; nothing of them is loaded."""
    try:
        check_bytes("stored", version.blob)
    except InvalidRequest:
        return True
    return False


def _named(bad: Sequence[str]) -> str:
    more = f", and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return "; ".join(bad[:NAMED]) + more
