"""Conformance tests for searchers: subclass `SearcherTestCase` and define its fixture."""

from searchers.testing.candidate_checks import TinySpace, assert_well_formed, split
from searchers.testing.searchers import SearcherTestCase

__all__ = ["SearcherTestCase", "TinySpace", "assert_well_formed", "split"]
