"""Version of Mallorn and of its API."""

VERSION = "0.1.0"
SUMMARY = "Mallorn tunes tensor programs for the hardware their users own."
API = "/api/v1"
