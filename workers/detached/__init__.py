"""Batches: files of compiled candidates, timed on a machine that workers cannot reach."""
