"""Batches: built candidates that are timed on a machine which no worker reaches."""
