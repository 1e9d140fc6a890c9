"""What a host refuses is said in one sentence, with the file and the way out; faults of ours stay ours."""

import errno
import os
import resource

import pytest

from mallorn.core.errors import HostFault, StorageFull
from mallorn.core.os_errors import can_open_file, explain_os_error, reports_too_many_files


def system(number: int, file: str | None = "/data/x") -> OSError:
    return OSError(number, os.strerror(number), file)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EFBIG, errno.EIO, errno.EACCES])
def test_what_cannot_be_written_is_named(number: int) -> None:
    found = explain_os_error(system(number))
    assert isinstance(found, StorageFull)
    assert found.message.startswith("/data/x cannot be read or written")
    assert "/data/x" in found.hint


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_as_ever(number: int) -> None:
    assert explain_os_error(system(number)).message == StorageFull().message


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_want_of_handles_names_the_limit(number: int) -> None:
    found = explain_os_error(system(number))
    assert isinstance(found, HostFault)
    assert str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) in found.message
    assert "/data/x" in found.message
    assert "ulimit -n" in found.hint


@pytest.mark.parametrize("error", [MemoryError(), system(errno.ENOMEM)])
def test_want_of_memory_is_the_hosts(error: BaseException) -> None:
    assert isinstance(explain_os_error(error), HostFault)


@pytest.mark.parametrize("error", [KeyError("x"), system(errno.ENOENT), system(errno.EIO, None)])
def test_all_else_is_a_fault_of_ours(error: BaseException) -> None:
    assert explain_os_error(error) is None


def test_words_of_libraries_are_understood() -> None:
    assert reports_too_many_files("ld.lld: cannot open a.o: Too many open files")
    assert reports_too_many_files("error: ProcessFdQuotaExceeded")
    assert not reports_too_many_files("No such file")
    assert can_open_file()
