"""Coordinates the processes of one host: locks on its cores, measured load, priority and memory."""
