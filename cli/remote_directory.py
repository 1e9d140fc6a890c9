"""A directory that a command reads or changes, on this machine or at an fsspec URL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from mallorn.cli.run_service_part import require_packages
from mallorn.core.artifact_uris import open_store
from mallorn.core.errors import InvalidRequest, MallornError, NotFound, Unavailable


@contextmanager
def open_directory(place: str, *, writes: bool = False, create: bool = False) -> Iterator[Path]:
    """Yield a path, or a temporary copy of the directory at a URL such as s3://BUCKET/DIR.

    With `writes`, what the block changed or deleted is changed there when it ends. Raises
    NotFound if there is no directory, unless `create`; Unavailable if the store fails.
    """
    if "://" not in place:
        if not create and not Path(place).is_dir():
            raise NotFound(f"there is no folder {place}", hint="mallorn schedules export DIR   (makes one)")
        yield Path(place)
        return
    with require_packages("server,worker"), TemporaryDirectory(prefix="mallorn-schedules-") as scratch:
        fs, root = open_store(place)
        folder, contents = Path(scratch), dict[Path, bytes]()
        with _convert_errors(place):
            for name in fs.find(root) if fs.exists(root) else ():
                path = folder / name[len(root) :].lstrip("/")
                if not path.resolve().is_relative_to(folder.resolve()):
                    raise InvalidRequest(f"{place} names a file outside its directory: {name!r}")
                path.parent.mkdir(parents=True, exist_ok=True)
                contents[path] = fs.cat_file(name)
                path.write_bytes(contents[path])
        if not contents and not create:
            raise NotFound(f"there are no files at {place}", hint=f"mallorn schedules export {place}")
        yield folder
        if not writes:
            return
        with _convert_errors(place):
            files = [path for path in folder.rglob("*") if path.is_file()]
            for path in files:
                if (content := path.read_bytes()) != contents.pop(path, None):
                    url = f"{root}/{path.relative_to(folder)}"
                    fs.makedirs(url.rpartition("/")[0], exist_ok=True)
                    fs.pipe_file(url, content)
            for path in contents:
                fs.rm_file(f"{root}/{path.relative_to(folder)}")


@contextmanager
def _convert_errors(place: str) -> Iterator[None]:
    try:
        yield
    except MallornError:
        raise
    except Exception as error:  # each fsspec backend raises its own error classes
        message = f"{place} cannot be used: {type(error).__name__}: {error}"
        hint = "check the URL, and the credentials that fsspec reads for it"
        raise Unavailable(message, hint=hint) from error
