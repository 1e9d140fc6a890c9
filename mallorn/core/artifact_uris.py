"""Where things lie in the artifact store, and how using it can end, whatever fsspec and its stores raise."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from posixpath import dirname
from typing import Any

from mallorn.core.errors import InvalidRequest, MallornError, MissingPackage, NotFound, StoreAway
from mallorn.core.install_command import install_line
from mallorn.core.os_errors import os_error


def open_store(url: str) -> tuple[Any, str]:
    """The file system of an fsspec URL, and the path there. Other hosts write to it: no listing is kept.

    Raises MissingPackage, InvalidRequest for a protocol that nothing here speaks.
    """
    from fsspec.core import url_to_fs  # a client has none

    protocol = url.partition("://")[0]
    try:
        fs, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        hint = install_line("s3") if protocol == "s3" else "install it beside Mallorn"
        raise MissingPackage(f"no artifacts at {protocol}:// from here: {error}", hint=hint) from None
    except ValueError as error:
        hint = "MALLORN_ARTIFACTS=/DIR, or s3://BUCKET/PREFIX"
        raise InvalidRequest(f"no artifacts at {protocol}:// from here: {error}", hint=hint) from None
    return fs, path


def model_uri(artifacts: str, model_id: str) -> str:
    """The bytes of an uploaded model, named by their SHA-256; owners who upload the same bytes share them."""
    return f"{artifacts.rstrip('/')}/models/{model_id}"


def export_uri(artifacts: str, job_id: str, target_key: str) -> str:
    """The directory of a job's exported logs: one directory per target."""
    return f"{artifacts.rstrip('/')}/exports/{job_id}/{target_key}"


def exports_beside(uri: str) -> str:
    """The directory of all exports of the job that one of them belongs to."""
    return uri.rpartition("/")[0]


def batch_uri(artifacts: str, job_id: str, batch_id: str) -> str:
    """Return the URI of a batch's record; with `*` as an id, a pattern of such URIs."""
    return f"{artifacts.rstrip('/')}/batches/{job_id}/{batch_id}.json"


def scripts_uri(artifacts: str, workload_key: str, trace: str) -> str:
    """A schedule in readable form, named by what it is: jobs that end with the same schedule share it."""
    return f"{artifacts.rstrip('/')}/scripts/{sha256(f'{workload_key}:{trace}'.encode()).hexdigest()}.json"


@contextmanager
def reaching(uri: str) -> Iterator[tuple[Any, str]]:
    """The file system of a file, and its path there.

    Raises StoreAway where the store does not answer, or nothing here speaks to it; NotFound where it does and
    has no such file; StorageFull or HostFault where this host refuses something. A folder that is missing
    with all that it held is no deleted file: its disk is not mounted, or its bucket not there.
    """
    try:
        yield _opened(uri)
    except MallornError:
        raise
    except FileNotFoundError as error:
        if _is_there(dirname(uri)):
            again = "mallorn tune MODEL   (sends it again)"
            raise NotFound(f"the artifact store has no {uri}", hint=again) from error
        raise StoreAway(
            f"{dirname(uri)} is not there: is its disk mounted?", hint=f"ls {dirname(uri)}; mount"
        ) from error
    except Exception as error:  # each kind of store has errors of its own
        raise os_error(error, uri) or away(uri, error) from error


def away(uri: str, error: Exception) -> StoreAway:
    """The error for a store that answered with this one."""
    return StoreAway(f"the artifact store does not answer for {uri}: {type(error).__name__}: {error}")


def _opened(uri: str) -> tuple[Any, str]:
    try:
        return open_store(uri)
    except MallornError as error:
        raise away(uri, error) from error


def _is_there(folder: str) -> bool:
    try:
        store, path = open_store(folder)
        return bool(store.exists(path))
    except Exception:  # as above
        return False
