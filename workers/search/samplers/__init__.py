"""Which of a scored pool are measured: one file a batch sampler."""
