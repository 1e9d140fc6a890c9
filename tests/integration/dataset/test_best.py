"""The fastest candidates, each once, however often they were measured."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.db.repositories.trials import Trials
from mallorn.workers.shared_schedules import target_folders
from tests.fixtures.database import BOTH
from tests.fixtures.filled_dataset import Filled


@BOTH
def test_the_next_best_stands_behind_all_repeats_of_the_best(filled: Filled) -> None:
    def best(count: int) -> list[tuple[tuple[int, ...], float | None]]:
        with filled.database.session() as session:
            found = Trials(session).best(filled.workloads["w0"], filled.target_id, count)
        return [(trial.candidate.decisions, trial.latency_us) for trial in found]

    assert best(3) == [((2, 2), 3.0), ((0, 2), 5.0)]
    for latency_us in (1.0, 2.0):
        filled.closed_round(*[filled.ok(slot, latency_us, decisions=(9, 9)) for slot in range(30)])
    assert best(2) == [((9, 9), 1.0), ((2, 2), 3.0)]
    refuted = filled.failed(0, Outcome.WRONG_RESULT, decisions=(9, 9))
    filled.closed_round(refuted)
    assert best(2) == [((2, 2), 3.0), ((0, 2), 5.0)]


@BOTH
def test_children_that_rebuild_the_rows_of_all_owners_have_a_room(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = []

    def start(**options: Any) -> Any:
        rooms.append(options.get("room"))
        return nullcontext()

    monkeypatch.setattr(target_folders, "CandidateCompiler", start)
    monkeypatch.setattr("mallorn.workers.interfaces.model_compiler.ModelCompiler", start)
    other = Target('{"kind":"llvm","num-cores":64}')
    assert list(target_folders.export_schedules(filled.database, tmp_path, other)) == []
    assert len(rooms) == 2
    assert all(rooms)
