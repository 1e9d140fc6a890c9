"""Feature extractors for candidate schedules, a module per view, and parsers for them."""
