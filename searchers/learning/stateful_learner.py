"""Base class of learners that pass their parameters on to the task's next round."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.serialization import pack, unpack
from mallorn.searchers.base import Proposal, Trial
from mallorn.searchers.batch_searcher import BatchSearcher
from mallorn.searchers.learning.dense_network import Parameters
from mallorn.searchers.learning.exploring_learner import Learner
from mallorn.searchers.space import Space
from mallorn.searchers.stateful_searcher import MOST_BYTES, State, StatefulSearcher

SPARE: Final = 1 << 16  # bytes for names and headers


class LearnedParameters:
    """Parameters by sketch; `packed` drops the last sketches if they exceed the size limit."""

    def __init__(self, kind: str, parameters: Mapping[str, Parameters] | None = None) -> None:
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
        stored_parameters = {
            key: {
                name.removeprefix(f"{place}."): array
                for name, array in wide.items()
                if name.startswith(f"{place}.")
            }
            for place, key in places
            if isinstance(key, str)
        }
        return cls(kind, stored_parameters)

    def of(self, sketch: str) -> Parameters | None:
        return self._known.get(sketch)

    def store(self, sketch: str, parameters: Parameters) -> None:
        self._known[sketch] = parameters

    def packed(self) -> bytes | None:
        """Return the parameters as at most MOST_BYTES; None without any."""
        left = MOST_BYTES - SPARE
        sketches: list[str] = []
        arrays: dict[str, NDArray[np.float32]] = {}
        for sketch, parameters in self._known.items():
            narrow = {name: array.astype(np.float32) for name, array in parameters.items()}
            left -= sum(array.nbytes for array in narrow.values())
            if left < 0:
                break
            arrays |= {f"{len(sketches)}.{name}": array for name, array in narrow.items()}
            sketches.append(sketch)
        return pack(self._kind, {"sketches": sketches}, arrays) if sketches else None


@dataclass(eq=False, kw_only=True)
class StatefulLearner(StatefulSearcher, Learner):
    """A Learner whose policy continues from the task's last round. With `keeping` off, it
    trains anew in each round; with `learning` off, it does not train. These variants show
    the benefit of each."""

    learning: bool = True
    keeping: bool = True

    def __post_init__(self) -> None:
        # From these `explore` starts, and it updates them.
        self.stored_parameters = LearnedParameters(self._kind)

    def propose_from(
        self,
        state: State,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> tuple[list[Proposal], State]:
        learner = copy(self)  # keep this object unchanged
        learner.stored_parameters = LearnedParameters.read(
            self._kind, state if self.keeping and self.learning else None
        )
        proposals = BatchSearcher.propose(learner, space, history, model, count, rng)
        return proposals, learner.stored_parameters.packed() if self.keeping and self.learning else None

    @property
    def _kind(self) -> str:
        return type(self).__name__
