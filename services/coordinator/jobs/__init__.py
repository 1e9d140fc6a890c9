"""Jobs: submitting, looking, steering."""
