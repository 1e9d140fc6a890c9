"""Code that needs TVM, run in child processes: model import, sketches, builds, devices."""
