"""Declared methods of child processes, for callers and workers.tvm; they need no TVM."""
