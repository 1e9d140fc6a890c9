"""Compile a model with its schedules to a library, using stock TVM only; the code of an
export.
"""
