"""A sketch that workloads of other sizes share is made to fit the one that was recorded."""

from dataclasses import replace

import numpy as np

from benchmarks.lab.replay_search import RecordedSpace
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn_research.replay.recorded_tasks_from_dataset import fit_sketch_to_candidates
from research.tests.unit.replay.made_up import made_up

CHOICES = (
    Choice(ChoiceKind.TILE, 3, extent=512, limit=64),
    Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1), labels=(0, 16), weights=(0.5, 0.5)),
    Choice(ChoiceKind.LOCATION, 1, values=(-1, 7, 9), weights=(0.2, 0.4, 0.4)),
)


def test_extents_and_locations_are_those_of_the_candidates_and_lists_stay() -> None:
    candidates = [Candidate("s", (2, 3, 4, 1, 5)), Candidate("s", (24, 1, 1, 0, -1))]
    tile, listed, location = fit_sketch_to_candidates(Sketch("s", "[trace]", CHOICES, 2), candidates).choices
    assert tile == replace(CHOICES[0], extent=24)
    assert listed == CHOICES[1]
    assert (location.values, location.weights) == ((-1, 5), ())


def test_a_sketch_of_another_size_becomes_one_in_which_all_candidates_are_well_formed() -> None:
    task = made_up(80)
    strange = SyntheticSpace(96, 50, 512).sketches
    assert not any(RecordedSpace(replace(task, sketches=strange)).well_formed([task.trials[0].candidate]))
    candidates = [trial.candidate for trial in task.trials]
    mended = [fit_sketch_to_candidates(s, [c for c in candidates if c.sketch == s.key]) for s in strange]
    space = RecordedSpace(replace(task, sketches=tuple(mended)))
    assert all(space.well_formed(candidates))
    assert all(space.well_formed(space.sample(np.random.default_rng(0), 50)))
