"""The command line, where no console script is installed."""

from cli.main import app

app(prog_name="mallorn")
