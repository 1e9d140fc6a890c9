"""Constants: computed beforehand, and kept once."""
