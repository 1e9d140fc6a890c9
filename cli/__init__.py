"""The command line: one file per group of commands, which import what they need when run."""
