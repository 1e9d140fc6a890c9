"""Families: which workloads of a target share measurements and a cost model."""
