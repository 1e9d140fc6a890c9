"""The command line, one file a group of commands. What a command needs it imports when it runs."""
