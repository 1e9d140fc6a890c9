"""Converters of ONNX nodes that TVM's importer lacks or supports only in part."""
