"""The measuring endpoint: a process with TVM's runtime alone, and the tracker where it registers."""
