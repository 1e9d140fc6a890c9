"""Measurers: build and time candidates. TVM over RPC and replay side by side."""
