"""What the learning searchers share: moves, knobs, a scout that prices candidates, a small network."""
