"""The list of shipped files, and how they come from their packages: by digest, into a folder."""

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

LIST: Final = Path(__file__).with_name("files.json")
SEEN, DEVELOPMENT, HELD_OUT = "seen", "development", "held-out"
HALVES: Final = (SEEN, DEVELOPMENT, HELD_OUT)
FETCH_SEC: Final = 300.0


@dataclass(frozen=True)
class Archive:
    """A wheel, or a tarball of npm, at an address, with the SHA-256 of its bytes."""

    url: str
    sha256: str

    def read_members(self, names: Sequence[str]) -> dict[str, bytes]:
        """Fetch the archive and return these members. Raises ValueError if its digest differs."""
        with urlopen(self.url, timeout=FETCH_SEC) as response:
            data = response.read()
        check_digest(self.url, data, self.sha256)
        if self.url.endswith((".whl", ".zip")):
            with zipfile.ZipFile(io.BytesIO(data)) as wheel:
                return {name: wheel.read(name) for name in names}
        with tarfile.open(fileobj=io.BytesIO(data)) as tarball:
            streams = {name: tarball.extractfile(name) for name in names}
            return {name: stream.read() for name, stream in streams.items() if stream is not None}


@dataclass(frozen=True)
class ShippedFile:
    """An ONNX file of a package, with the shapes and the kind of values that the package gives it.

    `half` says when the file was first read: `seen` before the lots were drawn, `development`
    while Mallorn was being mended, `held-out` only to measure.
    """

    name: str
    half: str
    package: str
    version: str
    archive: Archive
    member: str
    sha256: str
    inputs: Mapping[str, Mapping[str, Any]]

    def path(self, folder: Path) -> Path:
        """Return the place of the file in a folder of fetched files."""
        return folder / f"{self.name}.onnx"


def read_list() -> list[ShippedFile]:
    """Return all files of the list."""
    return [
        ShippedFile(
            name=row["name"],
            half=row["half"],
            package=row["package"],
            version=row["version"],
            archive=Archive(row["url"], row["archive_sha256"]),
            member=row["member"],
            sha256=row["sha256"],
            inputs=row["inputs"],
        )
        for row in json.loads(LIST.read_text())
    ]


def fetch(files: Sequence[ShippedFile], folder: Path) -> None:
    """Fetch the files that the folder lacks, each archive once. Raises ValueError at a wrong digest."""
    folder.mkdir(parents=True, exist_ok=True)
    missing: dict[Archive, list[ShippedFile]] = {}
    for file in files:
        if not file.path(folder).exists():
            missing.setdefault(file.archive, []).append(file)
    for done, (archive, of_archive) in enumerate(missing.items(), 1):
        members = archive.read_members([file.member for file in of_archive])
        for file in of_archive:
            write_checked(file.path(folder), members[file.member], file.sha256)
        print(f"{done} of {len(missing)}: {of_archive[0].package} {of_archive[0].version}", flush=True)


def write_checked(path: Path, data: bytes, sha256: str) -> None:
    """Write a file whole, if its digest is right. Raises ValueError if not."""
    check_digest(path.name, data, sha256)
    draft = path.with_suffix(".part")
    draft.write_bytes(data)
    draft.rename(path)


def check_digest(name: str, data: bytes, sha256: str) -> None:
    """Raise ValueError if the data are not those that the list names."""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(f"{name} is not the file of the list: its SHA-256 differs")
