"""Searchers with any sampler and model: who is asked, and what changes what they propose."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from mallorn.core.registry import REGISTRY, find_plugins, resolve
from mallorn.costmodels.random import RandomModel
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn.searchers.algorithms.evolutionary import Evolutionary
from mallorn.searchers.base import Trial
from mallorn.searchers.pooled_searcher import TopK
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import SyntheticSpace, fit_on_history
from tests.kits.samplers import SamplerTestCase


def test_without_epsilon_the_best_are_taken_in_order() -> None:
    pool = SamplerTestCase.pool(40)
    chosen = TopK(0.0, optimism=0.0).choose(pool, 5, np.random.default_rng(0))
    assert pool.prediction.mean[chosen].tolist() == sorted(pool.prediction.mean.tolist())[:-6:-1]


def test_optimism_prefers_the_unknown() -> None:
    pool = SamplerTestCase.pool(40)
    chosen = TopK(0.0, optimism=1e6).choose(pool, 3, np.random.default_rng(0))
    assert pool.prediction.std[chosen].tolist() == sorted(pool.prediction.std.tolist())[:-4:-1]


def test_a_useful_model_beats_a_useless_one() -> None:
    space = SyntheticSpace(128, 128, 64)
    history = [space.measure(c) for c in dict.fromkeys(space.sample(np.random.default_rng(0), 200))]
    medians = [proposed_us(space, history, model) for model in (XGBoost, RandomModel)]
    assert medians[0] < 0.5 * medians[1]


def proposed_us(space: SyntheticSpace, history: list[Trial], kind: type[XGBoost | RandomModel]) -> float:
    model = fit_on_history(space, history, kind, seed=0)
    proposals = Evolutionary().propose(space, history, model, 32, np.random.default_rng(1))
    return float(np.median(space.latency_us([p.candidate for p in proposals])))


def test_only_finalists_are_checked_for_validity() -> None:
    asked = Counter[Candidate]()

    class Counting(SyntheticSpace):
        def valid(self, candidates: list[Candidate]) -> list[bool]:  # type: ignore[override]
            asked.update(candidates)
            return super().valid(candidates)

    space = Counting()
    history = [space.measure(c) for c in space.sample(np.random.default_rng(0), 60)]
    model = fit_on_history(space, history, XGBoost, seed=0)
    assert len(Evolutionary().propose(space, history, model, 64, np.random.default_rng(0))) == 64
    assert max(asked.values()) == 1
    assert len(asked) < 128


@pytest.mark.parametrize("sampler", sorted({*REGISTRY["sampler"], *find_plugins("sampler")}))
@pytest.mark.parametrize("search", sorted({*REGISTRY["search"], *find_plugins("search")}))
def test_every_registered_searcher_is_made_with_any_sampler(search: str, sampler: str) -> None:
    searcher = resolve("search", search)(resolve("sampler", sampler)())
    space = SyntheticSpace(64, 64, 64)
    assert len(searcher.propose(space, [], None, 4, np.random.default_rng(0))) == 4


PROPOSE = """
import numpy as np
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn.searchers.algorithms.evolutionary import Evolutionary
from mallorn.searchers.synthetic_space import simulate
from mallorn.searchers.synthetic_space import SyntheticSpace
history = simulate(SyntheticSpace(64, 64, 64), Evolutionary(), XGBoost, trials=32, round_size=16, seed=4)
print(",".join(trial.candidate.key for trial in history))
"""


def test_another_process_proposes_the_same() -> None:
    answers = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-c", PROPOSE]
        env = {"PYTHONHASHSEED": hash_seed}
        answers.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(answers) == 1
    assert answers.pop().count(",") == 31
