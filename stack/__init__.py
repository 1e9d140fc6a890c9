"""The embedded stack: all processes of Mallorn on one machine, run by `mallorn up`."""
