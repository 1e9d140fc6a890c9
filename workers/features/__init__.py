"""The views of candidates that need no compiler, one extractor each."""
