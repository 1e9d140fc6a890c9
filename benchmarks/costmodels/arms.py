"""What is compared: our cost models, MetaSchedule's own, and one that learned from scrambled labels."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mallorn.core.errors import Unavailable
from mallorn.core.registry import list_names, resolve
from mallorn.costmodels.base import CostModel
from mallorn.workers.round.feature_lookup import LOWERED
from mallorn_research.pretraining.evaluate_splits import Make

METASCHEDULE: Final = "metaschedule"
CONTROL: Final = "scrambled"
LEARNER: Final = "xgboost"  # what learns from scrambled labels
ALL: Final = (METASCHEDULE, *list_names("cost_model"), CONTROL)


@dataclass(frozen=True, slots=True)
class Arm:
    """A model under the name that it is compared by."""

    name: str
    make: Make
    view: str

    @property
    def control(self) -> bool:
        return self.name == CONTROL


def arm(name: str) -> Arm:
    """Raises NotFound for a name that is none, Unavailable where what the model needs is not installed."""
    make = _make(name)
    return Arm(name, make, make().view)


def able(names: Iterable[str], stored: Collection[str]) -> Iterator[Arm]:
    """Those that can be judged on these rows; of the others, why not."""
    for name in names:
        try:
            found = arm(name)
        except Unavailable as missing:
            print(f"{name} is left out: {missing.message}")
            continue
        if found.view in LOWERED and found.view not in stored:
            print(f"{name} is left out: no view {found.view!r} is stored beside these rows")
            continue
        yield found


def _make(name: str) -> Make:
    if name == METASCHEDULE:
        return _metaschedule
    make: Make = resolve("cost_model", LEARNER if name == CONTROL else name)
    return make


def _metaschedule() -> CostModel:
    try:
        from benchmarks.costmodels.metaschedule import MetaSchedule
    except ModuleNotFoundError as missing:
        raise Unavailable(f"{missing.name} is not installed") from None
    return MetaSchedule()
