"""Rewrites of ONNX graphs to simpler ONNX graphs, before TVM's importer converts them."""
