"""Feature views that only cost models of research read."""
