"""Value classes shared by the database, REST API, child processes and the Python client."""
