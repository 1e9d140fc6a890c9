"""Replay searches on recorded measurements, without a compiler, a device or TVM."""
