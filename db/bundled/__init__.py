"""Measurements and base cost models that Mallorn installs and loads into each new database."""
