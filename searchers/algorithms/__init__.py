"""The search algorithms of the service, one per file, and credit of bandits."""
