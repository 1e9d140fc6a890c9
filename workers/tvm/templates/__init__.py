"""What is copied into an export. These files stand alone: they import nothing of ours."""
