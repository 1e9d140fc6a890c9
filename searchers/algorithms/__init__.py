"""The searchers, one file each, with the helpers that only one of them needs."""
