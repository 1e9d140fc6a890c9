"""Searchers without their learning, or what they keep, and a sampler without synthesis: for comparisons.

Benchmarks name them `ppo-unlearned`; a job names any of them as a class of one's own, with its module.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.research.samplers.clustered import Clustered
from mallorn.research.searchers.beam_search import Beam
from mallorn.research.searchers.evolution_strategy import EvolutionStrategy
from mallorn.research.searchers.felix import Felix
from mallorn.research.searchers.monte_carlo_tree_search import Mcts
from mallorn.research.searchers.ppo import Ppo
from mallorn.research.searchers.qlearning import QLearning
from mallorn.research.searchers.sample_decision_model import Generator
from mallorn.searchers.algorithms.reinforce import Reinforce
from mallorn.searchers.sampler import Sampler, ScoredPool


@dataclass(eq=False, kw_only=True)
class PpoUnlearned(Ppo):
    """Walkers whose policies stay as they were made: knobs move at random."""

    learning: bool = False


@dataclass(eq=False, kw_only=True)
class QLearningUnlearned(QLearning):
    """Walkers whose steps are all random."""

    learning: bool = False


@dataclass(eq=False, kw_only=True)
class ReinforceUnlearned(Reinforce):
    """Draws from the tables fitted to the best known, without a step up the gradient."""

    learning: bool = False


@dataclass(eq=False, kw_only=True)
class MctsUnlearned(Mcts):
    """Trees without values: visits alone say where to go."""

    learning: bool = False


@dataclass(eq=False, kw_only=True)
class EvolutionStrategyUnlearned(EvolutionStrategy):
    """A distribution that stays as wide as the space."""

    learning: bool = False


@dataclass(eq=False, kw_only=True)
class BeamUnlearned(Beam):
    """A beam that keeps any prefixes: its ends are random candidates."""

    learning: bool = False


@dataclass(eq=False, kw_only=True)
class FelixUnlearned(Felix):
    """Steps as long, in random directions."""

    learning: bool = False


@dataclass(eq=False, kw_only=True)
class GeneratorUnlearned(Generator):
    """Draws at random in place of a model's, bred alike."""

    learning: bool = False


class Medoids(Sampler):
    """`clustered` without synthesis: it does not see what was measured."""

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return Clustered().choose(pool, count, rng)


TWINS: Final = {
    "ppo-unlearned": "benchmarks.lab.unlearned:PpoUnlearned",
    "qlearning-unlearned": "benchmarks.lab.unlearned:QLearningUnlearned",
    "reinforce-unlearned": "benchmarks.lab.unlearned:ReinforceUnlearned",
    "mcts-unlearned": "benchmarks.lab.unlearned:MctsUnlearned",
    "es-unlearned": "benchmarks.lab.unlearned:EvolutionStrategyUnlearned",
    "beam-unlearned": "benchmarks.lab.unlearned:BeamUnlearned",
    "generator-unlearned": "benchmarks.lab.unlearned:GeneratorUnlearned",
    "felix-unlearned": "benchmarks.lab.unlearned:FelixUnlearned",
}
SAMPLER_TWINS: Final = {"clustered-medoids": "benchmarks.lab.unlearned:Medoids"}


def located(name: str) -> str:
    """What a job is asked for: where a twin is, and any other name as it is."""
    return (TWINS | SAMPLER_TWINS).get(name, name)
