"""What a job's answers say: its curve, its decisions, two jobs compared. Pure; nothing is asked for here."""
