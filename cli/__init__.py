"""The command line: one file per group of commands. A command imports what it needs when it runs."""
