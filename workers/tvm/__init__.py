"""The one room that speaks TVM: spaces, traces, recipes, builds, RPC. All of it runs in child processes."""
