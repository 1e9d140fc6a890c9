"""The files that are copied into an export. They import nothing of ours but each other."""
