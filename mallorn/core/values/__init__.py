"""The values that tables, REST, children and the Python client share, one file a noun."""
