"""Routes for devices, workers and their recent activity."""
