"""Fuzzing of what reads strangers' bytes: `python -m benchmarks.fuzz`."""
