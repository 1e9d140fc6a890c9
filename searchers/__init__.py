"""Searchers, which only use the interface `Space` and do not need TVM."""
