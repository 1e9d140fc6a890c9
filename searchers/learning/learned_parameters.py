"""What a policy has learned, sketch by sketch, as bytes that the next round reads."""

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
    """Parameters by sketch; what does not fit into a state's bytes is left out, the last sketches first."""

    def __init__(self, kind: str, known: Mapping[str, Lesson] | None = None) -> None:
        self._kind = kind
        self._known = dict(known or {})

    @classmethod
    def read(cls, kind: str, state: bytes | None) -> "LearnedParameters":
        """What was packed; nothing, where these bytes are not of this kind."""
        try:
            names, arrays = unpack(kind, state or b"")
            places = list(enumerate(names["sketches"]))
        except (InvalidRequest, KeyError, TypeError):
            return cls(kind)
        wide = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
        known = {key: _named(wide, f"{place}.") for place, key in places if isinstance(key, str)}
        return cls(kind, known)

    def of(self, sketch: str) -> Lesson | None:
        """What is known of a sketch."""
        return self._known.get(sketch)

    def keep(self, sketch: str, lesson: Lesson) -> None:
        """Replace what is known of a sketch."""
        self._known[sketch] = lesson

    def packed(self) -> bytes | None:
        """The bytes; None without lessons."""
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
    """Whether a lesson has these arrays, finite, and no others."""
    return lesson.keys() == shapes.keys() and all(
        lesson[name].shape == shape and bool(np.isfinite(lesson[name]).all())
        for name, shape in shapes.items()
    )


def _named(arrays: Mapping[str, Array], prefix: str) -> Lesson:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
