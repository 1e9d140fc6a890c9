"""`python -m cli`: the command line, for use without the installed console script."""

from cli.main import app

app(prog_name="mallorn")
