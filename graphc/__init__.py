"""The graph compiler: an ONNX file becomes tensor functions worth tuning; with their schedules, a library.

It imports nothing of Mallorn's other rooms. An export carries it along as `graphc.zip`.
"""
