"""The control process: plans jobs, resends lost messages and takes back lost work."""
