"""Whatever a child puts in place of a file, the worker follows no link, waits for no pipe, and says so."""

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from mallorn.core.locked_folders import remove_tree
from mallorn.workers.sandbox.untrusted_files import TamperedFile, copy_out, untrusted_folder

MOST_BYTES = 1000


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (room := tmp_path / "room").mkdir()
    (tmp_path / "secret").write_text("secret")
    (room / "records").mkdir()
    return room


def copied(room: Path, name: str = "records/log.json") -> bytes:
    copy = room.parent / "copy"
    copy_out(room, name, copy, MOST_BYTES)
    return copy.read_bytes()


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def in_a_linked_folder(path: Path) -> None:
    (elsewhere := path.parents[2] / "elsewhere").mkdir()
    (elsewhere / path.name).write_text("secret")
    path.parent.rmdir()
    path.parent.symlink_to(elsewhere)


PLANTED: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to(path.parents[2] / "secret"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a hard link": lambda path: path.hardlink_to(path.parents[2] / "secret"),
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a huge file without content": sparse,
    "a file too large": lambda path: path.write_bytes(bytes(MOST_BYTES + 1)),
    "nothing": lambda path: None,
    "a file in a linked folder": in_a_linked_folder,
    "a file in place of the folder": lambda path: (path.parent.rmdir(), path.parent.write_text("x")),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_a_child_puts_in_place_of_a_file_is_refused_in_a_sentence(what: str, room: Path) -> None:
    PLANTED[what](room / "records" / "log.json")
    with pytest.raises(
        TamperedFile, match=r"a child process (left|did not leave a plain file) .*records/log\.json"
    ) as refused:
        copied(room)
    assert refused.value.hint


@pytest.mark.parametrize("name", ["../secret", "records/../../secret", "/etc/passwd", "records//x", "", "."])
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str, room: Path) -> None:
    with pytest.raises(TamperedFile, match="another folder"):
        copied(room, name)


def test_a_plain_file_is_copied(room: Path) -> None:
    (room / "records" / "log.json").write_bytes(bytes(MOST_BYTES))
    assert copied(room) == bytes(MOST_BYTES)


def test_what_this_host_refuses_is_not_blamed_on_the_child(room: Path) -> None:
    (room / "records" / "log.json").touch()
    with pytest.raises(FileNotFoundError):
        copy_out(room, "records/log.json", room.parent / "missing" / "copy", MOST_BYTES)


def test_a_file_that_grows_while_it_is_copied_ends_at_the_limit(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (room / "records" / "log.json").write_bytes(bytes(MOST_BYTES))
    monkeypatch.setattr("mallorn.workers.sandbox.untrusted_files.CHUNK_BYTES", MOST_BYTES // 2)
    monkeypatch.setattr(
        "mallorn.workers.sandbox.untrusted_files.find_flaw",
        lambda *_: os.truncate(room / "records" / "log.json", 1 << 40),
    )
    with pytest.raises(TamperedFile, match="wrote more than"):
        copied(room)


def nest(folder: Path, depth: int) -> None:
    place = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)


def test_folders_deeper_than_files_can_be_open_are_removed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits))
    with untrusted_folder("deep-", tmp_path) as folder:
        nest(folder, 1200)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    assert list(tmp_path.iterdir()) == []


def test_links_lead_nowhere_and_folders_without_rights_go_too(tmp_path: Path) -> None:
    (precious := tmp_path / "precious").mkdir(mode=0o500)
    (folder := tmp_path / "folder").mkdir()
    (folder / "closed").mkdir()
    (folder / "closed" / "inner").mkdir(mode=0o000)
    (folder / "closed" / "link").symlink_to(precious)
    (folder / "link").symlink_to(precious)
    os.mkfifo(folder / "pipe")
    (folder / "closed").chmod(0o000)
    remove_tree(folder)
    assert list(tmp_path.iterdir()) == [precious]
    assert precious.stat().st_mode & 0o777 == 0o500
    remove_tree(folder)  # what is gone is no error
    (link := tmp_path / "way").symlink_to(precious)
    remove_tree(link)
    assert link.is_symlink()
    assert precious.is_dir()
