"""The graph compiler: turns an ONNX file into tensor functions to tune, then into a library.

It imports no other package of Mallorn. An export contains it as `graphc.zip`.
"""
