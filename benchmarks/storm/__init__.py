"""Kills at random in an embedded stack: what is lost, doubled, does not end or is left lying."""
