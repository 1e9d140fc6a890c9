"""Whether this coordinator lives and can work."""
