"""Serialize models as compressed npz (numbers, arrays, kind of model) without pickle."""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.errors import InvalidRequest

Arrays = Mapping[str, NDArray[Any]]
Numbers = Mapping[str, Any]  # anything that JSON holds

HEADER: Final = "header"
SEAL: Final = b"sealed\x00\x01"
DIGEST_BYTES: Final = 32
ZIP: Final = b"PK"
TOLD: Final = 300  # characters of a reason
MOST_BYTES: Final = 1 << 28  # of all arrays unpacked; protects against zip bombs
DAMAGE: Final = (
    *(zipfile.BadZipFile, zlib.error, EOFError, MemoryError, NotImplementedError, OSError),
    *(LookupError, RecursionError, TypeError, ValueError),
)


def pack(kind: str, numbers: Numbers, arrays: Arrays) -> bytes:
    header = json.dumps({"kind": kind, "numbers": dict(numbers)}).encode()
    buffer = BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **{HEADER: as_array(header), **arrays})
    return buffer.getvalue()


def unpack(kind: str, blob: bytes) -> tuple[Numbers, Arrays]:
    """Return a model's numbers and arrays. Raises InvalidRequest if the bytes are
    truncated, damaged or of another kind of model."""
    try:
        with zipfile.ZipFile(BytesIO(blob)) as archive:
            unpacked_bytes = sum(member.file_size for member in archive.infolist())
        if unpacked_bytes > MOST_BYTES:
            raise ValueError(f"the stored model unpacks to {unpacked_bytes} bytes, more than {MOST_BYTES}")
        with np.load(BytesIO(blob), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(HEADER).tobytes())
        stored_kind, numbers = header["kind"], header["numbers"]
    except DAMAGE as error:
        raise unreadable(kind, str(error)) from error
    if stored_kind != kind:
        raise unreadable(kind, f"it is a {stored_kind} model")
    return numbers, arrays


def add_digest(content: bytes) -> bytes:
    """Prepend a SHA-256 for `check_and_remove_digest`: native readers crash on others."""
    return SEAL + hashlib.sha256(content).digest() + content


def check_and_remove_digest(kind: str, blob: bytes) -> bytes:
    """Return the content of sealed bytes; return bytes without a seal (old releases)
    unchanged. Raises InvalidRequest if the digest does not match."""
    if not blob.startswith(SEAL):
        return blob
    digest, content = blob[len(SEAL) :][:DIGEST_BYTES], blob[len(SEAL) + DIGEST_BYTES :]
    if hashlib.sha256(content).digest() != digest:
        raise unreadable(kind, "they are damaged")
    return content


def check_bytes(kind: str, blob: bytes) -> None:
    """Raise InvalidRequest if a model's seal or zip checksums show damage; load nothing.

    Text models of earlier releases have neither, and always pass.
    """
    content = check_and_remove_digest(kind, blob)
    if not content:
        raise unreadable(kind, "they are empty")
    if not content.startswith(ZIP):
        return
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            broken = archive.testzip()
    except DAMAGE as error:
        raise unreadable(kind, str(error)) from error
    if broken is not None:
        raise unreadable(kind, f"{broken} is damaged")


def as_array(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8)


def unreadable(kind: str, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"these {kind} model bytes cannot be read: {reason.partition(chr(10))[0][:TOLD]}",
        hint="fit the model again; its measurements are in the dataset",
    )
