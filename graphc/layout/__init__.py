"""Changes of layout: what lets them through, and what is left of them."""
