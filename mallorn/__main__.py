"""`python -m mallorn`: run the command line without an installed console script."""

import runpy

runpy.run_module("mallorn.cli", run_name="__main__", alter_sys=True)
