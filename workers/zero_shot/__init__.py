"""What a dataset answers about a task that nobody measures: the sources of zero- and one-shot."""
