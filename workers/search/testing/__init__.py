"""Conformance kits: subclass one, give it its fixture, and every clause of the contract is a test."""

from workers.search.testing.checks import TinySpace, assert_well_formed, split
from workers.search.testing.remembering import RememberingTestCase
from workers.search.testing.samplers import BatchSamplerTestCase, SynthesiserTestCase
from workers.search.testing.searchers import SearcherTestCase
from workers.search.testing.spaces import SpaceTestCase

__all__ = [
    "BatchSamplerTestCase",
    "RememberingTestCase",
    "SearcherTestCase",
    "SpaceTestCase",
    "SynthesiserTestCase",
    "TinySpace",
    "assert_well_formed",
    "split",
]
