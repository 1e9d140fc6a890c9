"""The client of a coordinator: models, jobs, their progress and results, and `mallorn.tune`."""
