"""The embedded stack: all parts of Mallorn on one machine, started and watched by `mallorn up`."""
