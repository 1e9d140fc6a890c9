"""Conformance kits: subclass one, give it its fixture, and every clause of the contract is a test."""

from searchers.testing.candidate_checks import TinySpace, assert_well_formed, split
from searchers.testing.samplers import BatchSamplerTestCase, SynthesiserTestCase
from searchers.testing.searchers import SearcherTestCase
from searchers.testing.spaces import SpaceTestCase
from searchers.testing.stateful import RememberingTestCase

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
