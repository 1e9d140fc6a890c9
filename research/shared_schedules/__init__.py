"""The best known records as a folder that people keep in git, and merge."""
