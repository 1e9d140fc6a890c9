"""A space made up by formula, to compare searchers in."""

from benchmarks.lab.replay_search import Arena
from mallorn.searchers.base import Trial
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import SyntheticSpace


class SyntheticArena(Arena):
    """A synthetic matrix product."""

    def __init__(self, m: int, n: int, k: int) -> None:
        self._synthetic = SyntheticSpace(m, n, k)
        super().__init__("synthetic", f"{m}x{n}x{k}", self._synthetic, self._synthetic.optimum_us)

    def measure(self, candidate: Candidate) -> Trial:
        return self._synthetic.measure(candidate)
