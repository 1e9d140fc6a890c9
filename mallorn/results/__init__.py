"""What a job's answers say: its curve, its decisions, a comparison of two jobs. Pure; nothing is asked for here."""
