"""Cost models that predict measured speed, their training and their evaluation."""
