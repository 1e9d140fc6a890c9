"""The dataset as a whole: snapshots, export to Parquet, import."""
