"""Where things lie in the artifact store, as fsspec URLs."""

from hashlib import sha256
from typing import Any

from mallorn.core.errors import InvalidRequest, MissingPackage
from mallorn.core.installing import install_line


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


def scripts_uri(artifacts: str, workload_key: str, trace: str) -> str:
    """A schedule in readable form, named by what it is: jobs that end with the same schedule share it."""
    return f"{artifacts.rstrip('/')}/scripts/{sha256(f'{workload_key}:{trace}'.encode()).hexdigest()}.json"
