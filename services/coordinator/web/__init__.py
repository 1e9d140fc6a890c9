"""Shared parts of all routes: authentication, paging, errors, limits and resources."""
