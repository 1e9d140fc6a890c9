"""Throughput of the service by the number of devices, on real processes and simulated devices."""
