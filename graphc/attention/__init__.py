"""Passes that speed up attention over key/value caches whose length grows."""
