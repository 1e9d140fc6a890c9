"""A directory that a command reads or changes, on this machine or at an fsspec URL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mallorn.cli.run_service_part import require_packages
from mallorn.core.artifact_uris import open_store
from mallorn.core.errors import InvalidRequest, MallornError, NotFound, Unavailable


@contextmanager
def open_directory(place: str, *, writes: bool = False, create: bool = False) -> Iterator[Path]:
    """Yield a path, or a temporary copy of the directory at a URL such as s3://BUCKET/DIR.

    With `writes`, files that the block changed are uploaded when it ends, and files that it
    deleted are deleted there. Raises NotFound if there is no directory, unless `create`.
    """
    if "://" not in place:
        if not create and not Path(place).is_dir():
            raise NotFound(
                f"there is no folder {place}",
                hint="mallorn schedules export DIR   (makes one)",
            )
        yield Path(place)
        return
    with (
        require_packages("server,worker"),
        TemporaryDirectory(prefix="mallorn-schedules-") as folder,
    ):
        fs, root = open_store(place)
        originals = download(fs, root, place, Path(folder))
        if not originals and not create:
            raise NotFound(f"there are no files at {place}", hint=f"mallorn schedules export {place}")
        yield Path(folder)
        if writes:
            upload(fs, root, place, Path(folder), originals)


def download(fs: Any, root: str, place: str, folder: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    try:
        names = [name[len(root) :].lstrip("/") for name in fs.find(root)] if fs.exists(root) else []
        for name in names:
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise InvalidRequest(f"{place} names a file outside its directory: {name!r}")
            path.parent.mkdir(parents=True, exist_ok=True)
            contents[name] = fs.cat_file(f"{root}/{name}")
            path.write_bytes(contents[name])
    except MallornError:
        raise
    except Exception as error:  # each fsspec backend raises its own error classes
        raise _away(place, error) from error
    return contents


def upload(fs: Any, root: str, place: str, folder: Path, originals: dict[str, bytes]) -> None:
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    try:
        for name, path in files.items():
            if (content := path.read_bytes()) != originals.get(name):
                fs.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
                fs.pipe_file(f"{root}/{name}", content)
        for name in originals.keys() - files.keys():
            fs.rm_file(f"{root}/{name}")
    except Exception as error:  # each fsspec backend raises its own error classes
        raise _away(place, error) from error


def _away(place: str, error: Exception) -> Unavailable:
    message = f"{place} cannot be used: {type(error).__name__}: {error}"
    return Unavailable(message, hint="check the URL, and the credentials that fsspec reads for it")
