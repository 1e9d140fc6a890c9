"""Export and import of the best records as a folder that can be kept and merged in git."""
