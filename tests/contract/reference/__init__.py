"""Pages of reference, generated from the code: `python -m tests.contract.reference docs/reference`."""
