"""Research tools: replay of recordings, base models, other tuners' logs, generated tasks."""
