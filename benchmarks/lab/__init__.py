"""Searchers, cost models and samplers replayed on recorded and made-up spaces."""
