"""ONNX graphs into simpler ONNX graphs, before anything is converted."""
