"""What helper processes are asked: declared once, for their callers and for workers.tvm, and without TVM."""
