"""Feature extractors for candidate schedules, one module per view (set of features)."""
