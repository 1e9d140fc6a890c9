"""Zero- and one-shot: sources of candidates for tasks that are not measured."""
