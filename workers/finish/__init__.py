"""The end of a job: winners measured again, checked and exported; the whole model compiled and timed."""
