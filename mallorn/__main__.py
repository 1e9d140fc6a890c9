"""`python -m mallorn`: the command line, where no console script is installed."""

import runpy

runpy.run_module("cli", run_name="__main__", alter_sys=True)
