"""Code that uses TVM, mostly in child processes: model import, schedules, builds, RPC."""
