"""The words all rooms share. Standard library and pydantic only; imports nothing else of ours."""
