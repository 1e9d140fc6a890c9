"""The searchers: one file each, and beside it what only it needs."""
