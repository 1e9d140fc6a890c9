"""Cost models that research compares, and the base class of those that build on another model."""
