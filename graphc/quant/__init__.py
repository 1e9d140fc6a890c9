"""Numbers of few bits: kept as they are, multiplied by instructions made for them."""
