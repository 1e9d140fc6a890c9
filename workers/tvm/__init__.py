"""All that needs TVM's compiler: spaces, traces, recipes, builds, RPC, in child processes."""
