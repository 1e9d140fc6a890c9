"""Graph compiler: imports an ONNX file, rewrites its graph for tuning, compiles a library.

It imports no other package of Mallorn. Exports contain it as `graphc.zip`, so that their
schedules can be applied with stock TVM.
"""
