"""`python -m mallorn.cli`: the command line, for use without the installed console script."""

from mallorn.cli.main import app

app(prog_name="mallorn")
