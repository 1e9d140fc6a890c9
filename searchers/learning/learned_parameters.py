"""Serialize policies' parameters per sketch as bytes for the task's next round."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costmodels.serialization import pack, unpack
from mallorn.core.errors import InvalidRequest
from searchers.learning.serial_matmul import Array
from searchers.stateful import MOST_BYTES

Lesson = Mapping[str, Array]  # the parameters of one sketch's policy, by name

SPARE: Final = 1 << 16  # bytes for names and headers


class LearnedParameters:
    """Parameters by sketch; `packed` drops the last sketches if they exceed the size limit."""

    def __init__(self, kind: str, parameters: Mapping[str, Lesson] | None = None) -> None:
        self._kind = kind
        self._known = dict(parameters or {})

    @classmethod
    def read(cls, kind: str, state: bytes | None) -> "LearnedParameters":
        """Return the parameters packed in `state`; empty if the bytes are not of this kind."""
        try:
            names, arrays = unpack(kind, state or b"")
            places = list(enumerate(names["sketches"]))
        except (InvalidRequest, KeyError, TypeError):
            return cls(kind)
        wide = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
        lessons = {key: _named(wide, f"{place}.") for place, key in places if isinstance(key, str)}
        return cls(kind, lessons)

    def of(self, sketch: str) -> Lesson | None:
        """Return the parameters of a sketch; None if there are none."""
        return self._known.get(sketch)

    def keep(self, sketch: str, lesson: Lesson) -> None:
        """Replace the parameters of a sketch."""
        self._known[sketch] = lesson

    def packed(self) -> bytes | None:
        """Return the parameters as at most MOST_BYTES; None without any."""
        left = MOST_BYTES - SPARE
        sketches: list[str] = []
        arrays: dict[str, NDArray[np.float32]] = {}
        for sketch, lesson in self._known.items():
            narrow = {name: array.astype(np.float32) for name, array in lesson.items()}
            left -= sum(array.nbytes for array in narrow.values())
            if left < 0:
                break
            arrays |= {f"{len(sketches)}.{name}": array for name, array in narrow.items()}
            sketches.append(sketch)
        return pack(self._kind, {"sketches": sketches}, arrays) if sketches else None


def fits(lesson: Lesson, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether a lesson has exactly arrays of these shapes, all finite."""
    return lesson.keys() == shapes.keys() and all(
        lesson[name].shape == shape and bool(np.isfinite(lesson[name]).all())
        for name, shape in shapes.items()
    )


def _named(arrays: Mapping[str, Array], prefix: str) -> Lesson:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
