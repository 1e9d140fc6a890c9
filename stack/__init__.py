"""The embedded stack: all parts of Mallorn on one machine, started and supervised by `mallorn up`."""
