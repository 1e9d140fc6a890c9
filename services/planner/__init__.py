"""Pure decisions: families, policies, budgets. No SQL, no TVM, no clock of its own."""
