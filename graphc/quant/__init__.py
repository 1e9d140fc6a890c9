"""Passes for int8, int4 and bfloat16 arithmetic, by the instructions made for it."""
