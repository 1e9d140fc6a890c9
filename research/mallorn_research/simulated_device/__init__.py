"""Simulate a device by a formula, to rehearse large fleets without hardware, a compiler or TVM."""
