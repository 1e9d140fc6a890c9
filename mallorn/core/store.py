"""How using the artifact store can end, whatever fsspec and its kinds of stores raise."""

from collections.abc import Iterator
from contextlib import contextmanager
from posixpath import dirname
from typing import Any

from mallorn.core.artifacts import open_store
from mallorn.core.errors import MallornError, NotFound, StoreAway
from mallorn.core.refused import refused


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
        raise refused(error, uri) or away(uri, error) from error


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
