"""What a tensor function says of itself to the scheduler."""
