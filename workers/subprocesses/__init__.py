"""Killable helper processes for work that may crash, hang or use too much memory."""
