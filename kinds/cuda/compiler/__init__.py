"""CUDA source to device code, and what its kernels use."""
