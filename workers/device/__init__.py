"""Processes that time candidates with only TVM's runtime, and the RPC tracker."""
