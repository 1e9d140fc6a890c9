"""RPC sessions with devices, and the small kernels that measure a machine."""
