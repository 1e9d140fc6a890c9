"""The planner: pure functions that choose a job's next rounds, without SQL, TVM or clock."""
