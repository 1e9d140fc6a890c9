"""Research tools: replay recordings, pretrain cost models, import logs, generate tasks."""
