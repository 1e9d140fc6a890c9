"""URIs in the artifact store, and conversion of its errors to Mallorn's."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from posixpath import dirname
from typing import Any

from mallorn.core.errors import InvalidRequest, MallornError, MissingPackage, NotFound, StoreAway
from mallorn.core.installation import pip_install_command
from mallorn.core.os_errors import explain_os_error


def open_store(url: str) -> tuple[Any, str]:
    """Return the file system and the path of an fsspec URL.

    Listings are not cached, since other hosts write there, too. Raises MissingPackage if
    the protocol's package is missing, InvalidRequest if it is unknown.
    """
    from fsspec.core import url_to_fs  # not installed in clients

    protocol = url.partition("://")[0]
    try:
        fs, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        hint = pip_install_command("fleet") if protocol == "s3" else "install it beside Mallorn"
        raise MissingPackage(f"{protocol}:// cannot be reached from here: {error}", hint=hint) from None
    except ValueError as error:
        hint = "MALLORN_ARTIFACTS=/DIR, or s3://BUCKET/PREFIX"
        raise InvalidRequest(f"{protocol}:// cannot be reached from here: {error}", hint=hint) from None
    return fs, path


def model_uri(artifacts: str, model_id: str) -> str:
    """Return the URI of an uploaded model; owners who upload the same bytes share it."""
    return f"{artifacts.rstrip('/')}/models/{model_id}"


def parts_uri(artifacts: str, owner: str, model_id: str) -> str:
    """Return the URI of the directory with the parts of an unfinished upload; `*` is a pattern."""
    folder = "*" if owner == "*" else sha256(owner.encode()).hexdigest()
    return f"{artifacts.rstrip('/')}/uploads/{folder}/{model_id}"


def export_uri(artifacts: str, job_id: str, target_key: str) -> str:
    """Return the URI of the directory that holds a job's exported schedules for one target."""
    return f"{artifacts.rstrip('/')}/exports/{job_id}/{target_key}"


def job_exports_uri(uri: str) -> str:
    """Return the parent of an export's URI: the folder with all exports of the job."""
    return uri.rpartition("/")[0]


def library_uri(uri: str, digest: str) -> str:
    """Return the URI of the library with this SHA-256, beside the export with this URI."""
    return f"{job_exports_uri(uri)}/libraries/{digest}.so"


def batch_uri(artifacts: str, job_id: str, batch_id: str) -> str:
    """Return the URI of a `mallorn batch` record; with `*` as an id, a pattern of them."""
    return f"{artifacts.rstrip('/')}/batches/{job_id}/{batch_id}.json"


def scripts_uri(artifacts: str, owner: str, workload_key: str, trace: str) -> str:
    """Return the URI of a schedule's TVMScript texts, shared by all jobs of its owner."""
    owner_digest = sha256(owner.encode()).hexdigest()
    digest = sha256(f"{owner_digest}:{workload_key}:{trace}".encode()).hexdigest()
    return f"{artifacts.rstrip('/')}/scripts/{digest}.json"


@contextmanager
def open_artifact(uri: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system and path of a file; convert errors in the block to Mallorn's.

    Raises StoreAway if the store does not answer, cannot be opened, or lacks the file's
    folder (its disk may not be mounted); NotFound if only the file is missing; StorageFull
    or HostFault if this host refuses an operation.
    """
    try:
        try:
            store = open_store(uri)
        except MallornError as error:
            raise store_away_error(uri, error) from error
        yield store
    except MallornError:
        raise
    except FileNotFoundError as error:
        folder = dirname(uri)
        try:
            fs, path = open_store(folder)
            has_folder = bool(fs.exists(path))
        except Exception:  # each fsspec backend raises its own error classes
            has_folder = False
        if has_folder:
            hint = "mallorn tune MODEL   (uploads the model again)"
            raise NotFound(f"the artifact store has no {uri}", hint=hint) from error
        message = f"the artifact store has no folder {folder}; its disk may not be mounted"
        raise StoreAway(message, hint=f"ls {folder}; mount") from error
    except Exception as error:  # each fsspec backend raises its own error classes
        raise explain_os_error(error, uri) or store_away_error(uri, error) from error


def store_away_error(uri: str, error: Exception) -> StoreAway:
    """Return a StoreAway error that describes this error of the store."""
    return StoreAway(f"the store of {uri} does not answer: {type(error).__name__}: {error}")
