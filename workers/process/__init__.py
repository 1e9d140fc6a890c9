"""One worker slot: what it holds for as long as it lives, and the leases of what it works at."""
