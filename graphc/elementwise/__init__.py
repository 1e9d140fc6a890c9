"""Functions of single numbers, and running sums, as vectors."""
