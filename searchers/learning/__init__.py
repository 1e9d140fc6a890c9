"""Common parts of the learning searchers: moves, knobs, a scorer, a small network."""
