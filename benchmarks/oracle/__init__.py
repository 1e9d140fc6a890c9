"""What the best of thousands of candidates takes, beside the machine's limit and what a search finds."""
