"""A network file system is no place for a database where its locks end at this machine; else it is one."""

from pathlib import Path

import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.stack.data_directory import DataDir, Mount, mount_of

# As the kernel writes them: id, parent, device, root, point, options, optional fields, -, kind, source, more.
TABLE = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 0:40 / /home rw,relatime shared:7 - autofs systemd-1 rw,fd=30
41 40 0:41 / /home/ada rw,nosuid - nfs4 server:/home/ada rw,vers=4.2,hard,local_lock=none,addr=10.0.0.1
42 22 0:42 / /old rw,relatime - nfs server:/old rw,vers=3,nolock,local_lock=all
43 22 0:43 / /with\040space rw - cifs //server/share rw,vers=3.1.1,nobrl
44 22 0:44 / /far rw - fuse.sshfs ada@server:/ rw,user_id=0
45 22 0:45 / /scratch rw - lustre server:/scratch rw,flock
46 22 0:46 / /twice rw - ext4 /dev/vdb1 rw
47 22 0:47 / /twice rw - nfs server:/twice rw,local_lock=flock
"""


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "mountinfo"
    file.write_text(TABLE)
    monkeypatch.setattr("mallorn.stack.data_directory.MOUNTS", file)
    return file


def found(path: str) -> Mount:
    mount = mount_of(Path(path))
    assert mount is not None
    return mount


@pytest.mark.parametrize("path", ["/var/lib", "/home/ada/.local/share/mallorn", "/scratch/x", "/older"])
def test_where_locks_reach_all_machines_data_may_lie(path: str) -> None:
    assert not found(path).has_local_locks


@pytest.mark.parametrize("path", ["/old/data", "/with space/data", "/far/data", "/twice/data"])
def test_where_they_do_not_it_is_refused_before_anything_is_made(path: str) -> None:
    assert found(path).has_local_locks
    with pytest.raises(
        InvalidRequest, match=f"{path} lies on {found(path).point}, a network file system"
    ) as refusal:
        DataDir(Path(path)).create_directories()
    assert "--data" in refusal.value.hint
    assert not Path(path).exists()


def test_a_path_lies_on_the_nearest_mount() -> None:
    assert (found("/home/ada/x").kind, found("/home/bob/x").kind, found("/").kind) == (
        "nfs4",
        "autofs",
        "ext4",
    )


def test_where_the_kernel_tells_nothing_nothing_is_refused(table: Path) -> None:
    table.unlink()
    assert mount_of(Path("/old/data")) is None
