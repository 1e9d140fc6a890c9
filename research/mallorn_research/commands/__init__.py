"""Commands that this package adds to `mallorn`."""
