"""Runs the command line as a module, for use without the installed console script."""

from cli.main import app

app(prog_name="mallorn")
