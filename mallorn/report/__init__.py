"""A job as HTML: a one-file page and a notebook card, escaped, without scripts or requests."""
