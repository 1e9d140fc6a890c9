"""Research tools: replay recordings, pretrain cost models, import logs; searchers and models."""
