"""A space so small that a search exhausts it."""

from collections.abc import Sequence

from mallorn.core.values.machine import assumed
from workers.search.decisions import DecisionSpace
from workers.search.space import Candidate, Choice, ChoiceKind, Sketch


class TinySpace(DecisionSpace):
    """Ten candidates, valid where the first factor is odd or the index 1."""

    def __init__(self) -> None:
        choices = (
            Choice(ChoiceKind.TILE, 2, extent=12, limit=6),
            Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1), labels=(0, 16), weights=(0.5, 0.5)),
        )
        super().__init__([Sketch("tiny", "", choices)], [1.0], assumed(cores=2, lanes=4))

    def everything(self) -> set[Candidate]:
        return {Candidate("tiny", (12 // f, f, i)) for f in (1, 2, 3, 4, 6) for i in (0, 1)}

    def possible(self) -> set[Candidate]:
        return {candidate for candidate in self.everything() if self.valid([candidate])[0]}

    def defaults(self) -> list[Candidate]:
        return [Candidate("tiny", (12, 1, 0)), Candidate("tiny", (3, 4, 0))]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [c.decisions[0] % 2 == 1 or c.decisions[2] == 1 for c in candidates]
