"""Passes that change memory layouts, move layout changes, and remove leftover copies."""
