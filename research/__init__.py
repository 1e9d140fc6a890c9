"""Research tools: replayed recordings, pre-trained bases, logs of other tuners, generated networks."""
