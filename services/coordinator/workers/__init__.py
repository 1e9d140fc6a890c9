"""Who works."""
