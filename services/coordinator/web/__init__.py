"""What all routes share: keys, pages, failures, limits, and what they hand on to."""
