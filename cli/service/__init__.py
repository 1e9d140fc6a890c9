"""How a command reaches a service: a coordinator that is named, the embedded stack, or the data directory alone."""
