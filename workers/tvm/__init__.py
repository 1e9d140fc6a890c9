"""The one room that speaks TVM: spaces, traces, recipes, builds, RPC. Everything here runs in child processes."""
