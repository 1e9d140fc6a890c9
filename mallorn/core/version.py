"""The version of all of Mallorn."""

VERSION = "0.1.0"
