"""Tables, sessions, repositories and migrations."""
