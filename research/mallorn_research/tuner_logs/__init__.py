"""Import logs of other tuners, without running those tuners' code."""
