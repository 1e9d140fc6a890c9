"""Killable helper processes: whatever may crash, hang or eat memory runs in one of these."""
