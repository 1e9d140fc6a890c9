"""Arms of the ablation: zero, chance, ours with one option changed, searchers, and stock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.lab.unlearned import TWINS
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import REGISTRY

ZERO: Final = "zero"
CHANCE: Final = "chance"
OURS: Final = "ours"
STANDARD: Final = JobOptions()
# Options that replace a part; `search-evolutionary` replaces the portfolio.
WITHOUT: Final[Mapping[str, Mapping[str, Any]]] = {
    "model": {"cost_model": "random"},
    "families": {"families": "none"},
    "bandit": {"policy": "round-robin"},
    "racing": {"stopping": "fixed"},
    "joint": {"contests": "apart"},
}
INSTEAD: Final[Mapping[str, Mapping[str, Any]]] = {"policy-gradient": {"policy": "gradient"}}  # not dynatune
CHANCE_OPTIONS: Final[Mapping[str, Any]] = {
    "search": "random",
    **WITHOUT["model"],
    **WITHOUT["families"],
    **WITHOUT["bandit"],
}
BATCHES: Final = (16, 64)


@dataclass(frozen=True)
class AblationArm:
    """An arm: a job with these options or, if `batch` is set, stock with this batch size."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch: int | None = None

    def trials(self, ours: int, stock: int) -> int:
        """Return the trial budget of a cell: 0 for `zero`, otherwise that of its side."""
        if self.name == ZERO:
            return 0
        return ours if self.batch is None else stock


def all_arms() -> dict[str, AblationArm]:
    """Return all arms by name, the ones that others are compared with first."""
    searchers = sorted(set(REGISTRY["search"]) - {STANDARD.search})
    arms = [
        AblationArm(ZERO),
        AblationArm(CHANCE, CHANCE_OPTIONS),
        AblationArm(OURS),
        *(AblationArm(f"without-{part}", options) for part, options in WITHOUT.items()),
        *(AblationArm(name, options) for name, options in INSTEAD.items()),
        *(AblationArm(f"search-{name}", {"search": name}) for name in searchers),
        *(AblationArm(f"search-{name}", {"search": twin}) for name, twin in TWINS.items()),
        *(AblationArm(f"stock-{batch}", batch=batch) for batch in BATCHES),
    ]
    return {arm.name: arm for arm in arms}
