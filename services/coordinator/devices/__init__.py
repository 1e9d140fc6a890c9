"""Who measures."""
