"""Which pages there are."""

from cli.reference.cli import cli_page
from cli.reference.options import options_page
from cli.reference.rest import rest_page
from cli.reference.settings import settings_page


def pages() -> dict[str, str]:
    """Every page by the name of its file. Raises Undescribed for what has no words of its own."""
    return {
        "cli.md": cli_page(),
        "rest.md": rest_page(),
        "settings.md": settings_page(),
        "options.md": options_page(),
    }
