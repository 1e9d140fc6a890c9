"""The coordinator: the REST API, one folder a noun."""
