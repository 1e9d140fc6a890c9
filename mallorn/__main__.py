"""`python -m mallorn`: the command line, where no console script is installed."""

from mallorn.commands.main import app

app(prog_name="mallorn")
