"""A job as HTML: a page of one file, and a card for notebooks. Nothing is fetched, no script, all escaped."""
