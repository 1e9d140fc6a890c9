"""The command line, one file per group of commands; each imports what it needs when run."""
