"""Snapshots of the measurement dataset, its export to Parquet and its import."""
