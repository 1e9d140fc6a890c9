"""Base classes and helpers of all passes."""
