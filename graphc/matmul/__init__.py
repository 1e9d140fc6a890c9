"""Products of matrices, pass by pass."""
