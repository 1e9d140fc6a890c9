"""Whole models timed in turn, each engine in a process of its own."""
