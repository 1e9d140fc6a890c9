"""Which combinations of searcher, cost model and sampler are compared."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from benchmarks.lab.replay_search import MakeModel
from benchmarks.lab.unlearned import SAMPLER_TWINS, TWINS, located
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import check_name, list_names, resolve
from mallorn.searchers.base import Searcher

NO_MODEL: Final = "none"
#: What is compared beside what is registered: no model, and learners whose learning is switched off.
BESIDE: Final = {
    "cost_model": (NO_MODEL,),
    "search": tuple(TWINS),
    "sampler": tuple(SAMPLER_TWINS),
}


@dataclass(frozen=True, order=True)
class Combination:
    """What a job chooses."""

    search: str
    cost_model: str
    sampler: str

    @property
    def key(self) -> str:
        return f"{self.search}/{self.cost_model}/{self.sampler}"

    def searcher(self) -> Searcher:
        made: Searcher = resolve("search", located(self.search))(resolve("sampler", located(self.sampler))())
        return made

    def make_model(self) -> MakeModel | None:
        if self.cost_model == NO_MODEL:
            return None
        made: MakeModel = resolve("cost_model", self.cost_model)
        return made


_STANDARD: Final = JobOptions()
STANDARD: Final = Combination(_STANDARD.search, _STANDARD.cost_model, _STANDARD.sampler)


@dataclass(frozen=True)
class Axes:
    """The names on each axis; an empty one stands for all that are registered."""

    searches: Sequence[str] = ()
    cost_models: Sequence[str] = ()
    samplers: Sequence[str] = ()

    def all(self) -> list[Combination]:
        """Every searcher with every cost model and every sampler."""
        return [Combination(*names) for names in product(*self._names())]

    def star(self) -> list[Combination]:
        """The defaults of a job, and what differs from them in one choice."""
        return [combination for combination in self.all() if _differences(combination) <= 1]

    def _names(self) -> Iterable[Sequence[str]]:
        for seam, names in (
            ("search", self.searches),
            ("cost_model", self.cost_models),
            ("sampler", self.samplers),
        ):
            for name in names:
                if (seam, name) != ("cost_model", NO_MODEL):
                    check_name(seam, located(name))
            known = list_names(seam) + list(BESIDE.get(seam, ()))
            yield list(dict.fromkeys(names)) or known


def _differences(combination: Combination) -> int:
    return sum(
        getattr(combination, name) != getattr(STANDARD, name) for name in ("search", "cost_model", "sampler")
    )
