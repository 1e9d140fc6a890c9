"""Declared methods of child processes, for callers and mallorn.workers.tvm; they need no TVM."""
