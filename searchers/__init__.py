"""Searchers, which choose the candidates to measure. They use only `Space`, not TVM."""
