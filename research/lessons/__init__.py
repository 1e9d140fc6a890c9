"""Measurements as cost models learn from them and are judged on, wherever they are kept."""
