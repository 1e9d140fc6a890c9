"""The fastest candidates, each once, however often they were measured."""

from mallorn.core.outcomes import Outcome
from mallorn.db.repositories.trials import Trials
from tests.fixtures.database import BOTH
from tests.integration.dataset.conftest import Filled


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
