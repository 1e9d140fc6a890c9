"""Code that uses TVM, mostly in child processes: model import, sketches, builds and RPC."""
