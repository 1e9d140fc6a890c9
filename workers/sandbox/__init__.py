"""Walls around processes that handle strangers' models and programs: what of this host they can reach."""
