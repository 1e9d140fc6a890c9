"""A worker's broker that is away for a while, in every way in which it can be."""
