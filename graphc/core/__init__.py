"""What the passes share."""
