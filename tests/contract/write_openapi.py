"""`python -m tests.contract.write_openapi FILE` writes the API's description, which a test compares."""

import json
import sys
from pathlib import Path

from mallorn.core.settings import Settings
from mallorn.services.coordinator.app import create_app


def main() -> None:
    """Write the OpenAPI document to the file that was named."""
    document = create_app(Settings()).openapi()
    Path(sys.argv[1]).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
