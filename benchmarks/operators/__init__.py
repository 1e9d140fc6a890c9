"""Networks of one operator, beside onnxruntime."""
