"""Models of a GPU kernel's time, one file per kind of sketch, and what they share."""
