"""Real tunings, as `benchmarks.search_real` recorded them: every round with the trials that it measured."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from mallorn.core.values.decision_log import RoundStats
from tests.fixtures.command_line import ROOT

CELLS: Final = ROOT / "docs" / "results" / "search_real"
MODELS: Final = ("mlp", "resnet18", "bert-small")
# The recordings have the names of 0.1.0.
to_today = import_module("mallorn.db.migrations.versions.0_2_0_23_names_of_0_1_0").to_today


@dataclass(frozen=True, slots=True)
class Recording:
    """One job: `rounds` in the order of their ends, as the API gave them, `trials` of each."""

    model: str
    seed: int
    search: str
    target: dict[str, Any]
    host: dict[str, Any]
    rounds: list[dict[str, Any]]
    trials: list[list[dict[str, Any]]]
    report: dict[str, Any]
    submitted_sec: float

    @property
    def budget(self) -> int:
        return sum(map(len, self.trials))

    @property
    def took_sec(self) -> float:
        """From submit to the end of the finish."""
        return float(self.rounds[-1]["finished_at"] - self.submitted_sec + self.report["finish_sec"])


def recording(model: str, seed: int = 0, search: str = "portfolio") -> Recording:
    """A tuning of `docs/results/search_real`."""
    cell = json.loads((CELLS / f"{model}-{seed}.json").read_text())
    details = cell["mallorn"][search]["details"]
    rounds = [*map(_with_names_of_today, sorted(details["rounds"], key=lambda each: each["finished_at"]))]
    trials = list(_dealt(rounds, sorted(details["records"], key=lambda each: each["at_sec"])))
    # Trials count their seconds from the submit, rounds by the clock; one worker ran one after the other.
    submitted_sec = rounds[0]["finished_at"] - trials[0][-1]["at_sec"]
    facts = model, seed, search, cell["target"], cell["host"]
    return Recording(*facts, rounds, trials, to_today(details["report"], "FinishReport"), submitted_sec)


def _with_names_of_today(row: dict[str, Any]) -> dict[str, Any]:
    stats = RoundStats.model_validate(to_today(row["stats"], "RoundStats"))  # without what is stored no more
    return row | {"stats": stats.to_stored_json(), "reason": to_today(row["reason"], "RoundNotes")}


def _dealt(rounds: list[dict[str, Any]], trials: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rest = iter(trials)
    for each in rounds:
        own = [next(rest) for _ in range(each["trials"])]
        assert len({trial["workload"] for trial in own}) == 1, "a round is about one workload"
        yield own
