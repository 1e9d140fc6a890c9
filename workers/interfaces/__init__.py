"""Method declarations of child processes, shared by callers and workers.tvm, without TVM."""
