"""Devices: measuring processes with only TVM's runtime, and the tracker where they register."""
