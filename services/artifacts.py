"""Takes things away from the artifact store."""

from fsspec.core import url_to_fs


def remove(uri: str) -> None:
    """Remove a file, or a directory with all in it; what is gone already is no error."""
    fs, path = url_to_fs(uri)
    if fs.exists(path):
        fs.rm(path, recursive=True)
