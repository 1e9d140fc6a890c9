"""Is there, and whole, what rows name: models, exports, cost models?"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from fsspec.core import url_to_fs

from costmodels.blobs import check_bytes
from db.repositories.stored import Stored
from db.session import Database
from mallorn.core.artifacts import model_uri
from mallorn.core.errors import InvalidRequest, MallornError

CHUNK_BYTES: Final = 1 << 20
NAMED: Final = 5  # of those that are missing or damaged, in one line


class Lacking(MallornError):
    """What rows name is missing or damaged."""


def models(database: Database, artifacts: str) -> str:
    """Raises Lacking, naming the files."""
    with database.session() as session:
        known = Stored(session).models()
    places = {model_id: model_uri(artifacts, model_id) for model_id in known}
    bad = [f"{places[each]} {why}" for each in known if (why := _flaw(places[each], each))]
    if bad:
        raise Lacking(_named(bad), hint="submit the same model files again: each is put back under its name")
    return f"{len(known)} models are there, and are what their names say"


def exports(database: Database) -> str:
    """Raises Lacking, naming jobs and places."""
    with database.session() as session:
        known = Stored(session).exports()
    bad = [f"{uri} of job {job} is missing" for job, uri in known.items() if not _files(uri)]
    if bad:
        raise Lacking(_named(bad), hint="restore `artifacts` from a backup, or submit the job again")
    return f"{len(known)} jobs have their exports"


def cost_models(database: Database) -> str:
    """Raises Lacking, naming the versions; nothing of them is loaded."""
    with database.session() as session:
        checked = [(str(each.name), _damage(each.blob)) for each in Stored(session).cost_models()]
    bad = [f"{name} is damaged" for name, damaged in checked if damaged]
    if bad:
        raise Lacking(_named(bad), hint="mallorn costmodels rollback MODEL   (to the version before it)")
    return f"{len(checked)} active cost models are whole"


def _flaw(uri: str, model_id: str) -> str:
    """What is wrong with a model's file; empty: nothing."""
    try:
        found = hashlib.sha256()
        for chunk in _chunks(uri):
            found.update(chunk)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return "" if found.hexdigest() == model_id else "holds other bytes than its name says"


def _chunks(uri: str) -> Iterator[bytes]:
    fs, path = url_to_fs(uri)
    with fs.open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _files(uri: str) -> Sequence[str]:
    fs, path = url_to_fs(uri)
    found: Sequence[str] = fs.find(path)
    return found


def _damage(blob: bytes) -> bool:
    try:
        check_bytes("stored", blob)
    except InvalidRequest:
        return True
    return False


def _named(bad: Sequence[str]) -> str:
    more = f", and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return "; ".join(bad[:NAMED]) + more
