"""Reports: a job told in one HTML page."""
