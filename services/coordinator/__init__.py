"""The coordinator: the REST API, with a module or folder per resource."""
