"""`python -m mallorn`: run the command line without an installed console script."""

from cli.main import app

app(prog_name="mallorn")
