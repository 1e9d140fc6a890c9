"""Common parts of the learning searchers: moves, knobs, a scorer and a small network."""
