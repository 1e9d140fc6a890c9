"""Collect training data from databases or files, and pretrain cost models with it."""
