"""Feature extractors of candidates, one module per view, and the parsers that they share."""
