"""Print what one role of a fleet needs: python requirements/role.py server fleet

The roles are extras of pyproject.toml. On Linux `pip install mallorn` installs all that `mallorn tune`
needs, and an image of one role needs less. `make lock` pins what this prints.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
needed = [line for line in project["dependencies"] if not line.startswith("mallorn[")]
for role in sys.argv[1:]:
    needed += project["optional-dependencies"][role]
sys.stdout.write("\n".join(needed) + "\n")
