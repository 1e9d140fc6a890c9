"""Pages of reference, generated from the code: `python -m mallorn.commands.reference docs/reference`."""
