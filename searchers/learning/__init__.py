"""Common parts of the learning searchers: moves, knobs, a scorer of candidates, a small network."""
