"""Where torch is not installed there is nothing to collect here: make test-neural installs it."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
