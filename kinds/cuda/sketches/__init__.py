"""Kinds of complete schedules for CUDA programs, with choices that searchers decide.

A kind is a function `schedules(module, target)` that yields schedules whose traces sample
tiles and lists. It binds, vectorizes and tensorizes everything itself, so that a candidate
needs no postprocessing. `kinds/cuda/compiler/cuda_compiler.py` lists them.
"""
