"""What a job's figures and decisions are called, for the terminal and for reports alike."""
