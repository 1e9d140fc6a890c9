"""How a command reaches a service: a coordinator, the embedded stack, or the data directory alone."""
