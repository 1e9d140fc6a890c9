"""The sandbox of processes that handle strangers' models and programs: it limits what they reach."""
