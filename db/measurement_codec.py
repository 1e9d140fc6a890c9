"""Compact binary encodings of decisions, run times, points of curves, and of long texts."""

from array import array
from collections.abc import Iterable, Sequence
from math import isnan, nan
from struct import Struct
from sys import byteorder
from typing import Final

import zstandard

from mallorn.core.values.learning_curve import WorkloadPoint

_LEVEL = 9
_MAX_TEXT_BYTES = 1 << 30
_POINT: Final = Struct("<dqd")  # when it closed, its trials, its best time or NaN


def pack_decisions(decisions: Iterable[int]) -> bytes:
    """Encode integers as zigzag varints; -64..63, which most decisions are, take one byte."""
    encoded = bytearray()
    for value in decisions:
        remaining = value << 1 if value >= 0 else (-value << 1) - 1
        while remaining > 0x7F:
            encoded.append(remaining & 0x7F | 0x80)
            remaining >>= 7
        encoded.append(remaining)
    return bytes(encoded)


def unpack_decisions(encoded: bytes) -> tuple[int, ...]:
    """Decode the output of `pack_decisions`. Raises ValueError if a number is cut off."""
    values: list[int] = []
    value = shift = 0
    for byte in encoded:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(-(value >> 1) - 1 if value & 1 else value >> 1)
            value = shift = 0
    if shift:
        raise ValueError("decisions end in the middle of a number")
    return tuple(values)


def pack_times(times_us: Sequence[float]) -> bytes:
    """Encode run times in µs as little-endian float32: seven digits, more than clocks."""
    values = array("f", times_us)
    if byteorder == "big":
        values.byteswap()
    return values.tobytes()


def unpack_times(encoded: bytes) -> tuple[float, ...]:
    values = array("f", encoded)
    if byteorder == "big":
        values.byteswap()
    return tuple(values)


def pack_points(points: Iterable[WorkloadPoint]) -> bytes:
    rows = ((one.closed_at, one.trials, nan if one.best_us is None else one.best_us) for one in points)
    return b"".join(_POINT.pack(*row) for row in rows)


def unpack_points(encoded: bytes) -> tuple[WorkloadPoint, ...]:
    rows = _POINT.iter_unpack(encoded)
    return tuple(
        WorkloadPoint(closed_at, trials, None if isnan(best) else best) for closed_at, trials, best in rows
    )


def pack_text(text: str) -> bytes:
    """Compress text, as UTF-8, into a zstd frame."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(text.encode())


def unpack_text(encoded: bytes) -> str:
    return zstandard.ZstdDecompressor().decompress(encoded, max_output_size=_MAX_TEXT_BYTES).decode()
