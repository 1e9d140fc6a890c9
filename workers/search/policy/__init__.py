"""What the searchers that learn a policy share: moves, knobs, a scout that prices, a small network."""
