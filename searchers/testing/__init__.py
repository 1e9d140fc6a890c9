"""The conformance kit: subclass it, give it its fixture, and every clause of the contract is a test."""

from searchers.testing.candidate_checks import TinySpace, assert_well_formed, split
from searchers.testing.searchers import SearcherTestCase

__all__ = ["SearcherTestCase", "TinySpace", "assert_well_formed", "split"]
