"""ONNX files that packages of PyPI and npm ship to their users, and what Mallorn makes of them."""
