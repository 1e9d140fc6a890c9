"""The dataset as a whole: frozen, carried elsewhere as Parquet, and brought in from there."""
