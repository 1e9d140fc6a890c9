"""Cost models side by side on frozen rows, beside MetaSchedule's own: `python -m benchmarks.costmodels`."""
