"""The search of the prepared minutes runs the product's own parts as they are today."""

from pathlib import Path

import pytest

from benchmarks.gpu.product_search import ProductSearch
from benchmarks.gpu.recording import model_task
from benchmarks.gpu.search_places import BY_CHANCE, OURS, SEED
from benchmarks.gpu.tasks import SEARCHED_REHEARSAL
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import parse_target
from mallorn.searchers.base import Trial

TARGET = parse_target({"kind": "llvm", "num-cores": 2})
SIZE = 2


@pytest.mark.parametrize("method", [OURS, BY_CHANCE])
def test_each_method_proposes_new_candidates_after_trials(tmp_path: Path, method: str) -> None:
    (task,) = SEARCHED_REHEARSAL
    search = ProductSearch(model_task(task.name), TARGET, tmp_path, 1, SIZE)
    try:
        first = search.proposals(method, SEED, [], 2 * SIZE)
        trials = [Trial(each.candidate, Outcome.OK, run_us=(10.0,), origin=each.origin) for each in first]
        then = search.proposals(method, SEED, trials, SIZE)
    finally:
        search.close()
    assert len(first) == len(then) == SIZE
    assert not {each.candidate for each in first} & {each.candidate for each in then}
