"""Chameleon's sample synthesis: candidates made of the most frequent settings of each knob."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from workers.search.space import Candidate, Sketch

Setting = tuple[int, ...]


def synthesised(sketch: Sketch, among: Sequence[Candidate]) -> Iterator[Candidate]:
    """The most frequent setting of each knob among candidates of a sketch; the first of equals.

    Then the same with one knob at its second setting, the most frequent of those first. A tile is one knob
    with all its factors, so what is made up is well-formed.
    """
    ends = list(accumulate((choice.width for choice in sketch.choices), initial=0))
    knobs = [
        Counter(each.decisions[start:end] for each in among).most_common(2) for start, end in pairwise(ends)
    ]
    best = [settings[0][0] for settings in knobs]
    yield _joined(sketch, best)
    seconds = [(at, *settings[1]) for at, settings in enumerate(knobs) if len(settings) > 1]
    for at, setting, _ in sorted(seconds, key=lambda second: -second[2]):
        yield _joined(sketch, [*best[:at], setting, *best[at + 1 :]])


def _joined(sketch: Sketch, settings: Sequence[Setting]) -> Candidate:
    return Candidate(sketch.key, tuple(value for setting in settings for value in setting))
