"""What the fleet did lately."""
