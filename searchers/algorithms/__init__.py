"""The searchers, one per file, with helpers that only one of them needs."""
