"""Pages of reference, generated from the code: `python -m cli.reference docs/reference`."""
