"""Predictors of measured speed, their training and their evaluation."""
