"""The dataset in numbers."""
