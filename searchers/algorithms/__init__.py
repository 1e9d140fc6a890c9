"""The search algorithms, one per file, and the bandit credit that two of them use."""
