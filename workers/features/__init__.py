"""What cost models see of candidates: one extractor a view, none of which knows a compiler."""
