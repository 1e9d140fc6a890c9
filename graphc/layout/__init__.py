"""Passes that change layouts, let layout changes through, and remove leftover copies."""
