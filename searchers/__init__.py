"""Searchers, written against Space: they run with no TVM installed."""
