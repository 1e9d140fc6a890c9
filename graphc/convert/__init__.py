"""Nodes of ONNX into Relax, where TVM's importer lacks them or has them too narrow."""
