"""Families: workloads of a target that share measurements and a cost model."""
