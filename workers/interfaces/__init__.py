"""Declared methods of child processes, for callers and workers.tvm; importing them needs no
TVM."""
