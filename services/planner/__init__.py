"""Planner: pure decisions on families, policies and budgets, without SQL, TVM or clock."""
