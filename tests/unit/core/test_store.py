"""Whatever a kind of store raises: it is away, it lacks a file, or we are refused, each told apart."""

import errno
import os
from pathlib import Path

import pytest

from mallorn.core.artifact_uris import open_artifact
from mallorn.core.errors import HostFault, InvalidModel, MallornError, NotFound, StorageFull, StoreAway


class EndpointConnectionError(Exception):
    """As botocore has it, which is no OSError."""


def raised(uri: str, error: Exception) -> MallornError:
    with pytest.raises(MallornError) as caught, open_artifact(uri):
        raise error
    return caught.value


AWAY = [
    OSError(errno.ESTALE, os.strerror(errno.ESTALE)),
    OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN)),
    OSError(errno.EHOSTDOWN, os.strerror(errno.EHOSTDOWN)),
    ConnectionRefusedError("refused"),
    TimeoutError("timed out"),
    EndpointConnectionError("Could not connect to the endpoint URL"),
    PermissionError("Access Denied"),
    OSError("Please reduce your request rate: 503 Slow Down"),
]


@pytest.mark.parametrize("error", AWAY, ids=repr)
def test_what_does_not_answer_is_away_and_named(error: Exception) -> None:
    told = raised("s3://bucket/models/7", error)
    assert type(told) is StoreAway
    assert "s3://bucket/models/7" in told.message
    assert told.hint


@pytest.mark.parametrize(
    ("error", "kind"), [(OSError(errno.ENOSPC, "x"), StorageFull), (OSError(errno.EMFILE, "x"), HostFault)]
)
def test_what_this_host_refuses_is_told_as_such(error: OSError, kind: type[MallornError]) -> None:
    assert type(raised("s3://bucket/models/7", error)) is kind


def test_our_own_errors_pass(tmp_path: Path) -> None:
    assert type(raised(str(tmp_path / "7"), InvalidModel("torn"))) is InvalidModel


def test_a_missing_file_is_no_missing_store(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    assert type(raised(str(tmp_path / "models" / "7"), FileNotFoundError())) is NotFound
    assert type(raised(str(tmp_path / "gone" / "7"), FileNotFoundError())) is StoreAway
    assert type(raised("no-such-kind://bucket/models/7", FileNotFoundError())) is StoreAway
