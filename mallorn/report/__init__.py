"""HTML on a job: a one-file page and a notebook card, without scripts or requests."""
