"""Reads the logs of other tuners, without any of their code."""
