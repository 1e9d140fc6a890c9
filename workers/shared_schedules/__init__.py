"""Export and import the best tuning records as a folder that can be kept in git."""
