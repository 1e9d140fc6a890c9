"""Makes up tasks near those of real networks, so that a dataset grows where jobs will come to look."""
