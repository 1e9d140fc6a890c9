"""What a job may ask for."""
