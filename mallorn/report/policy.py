"""What a browser may do with a page of ours that carries its own style: show it, and nothing else."""

import base64
import hashlib
from typing import Final

from mallorn.report.style import PAGE

# By its hash, so that no other style, and no script at all, may stand in the page.
STYLE: Final = f"'sha256-{base64.b64encode(hashlib.sha256(PAGE.encode()).digest()).decode()}'"
POLICY: Final = f"default-src 'none'; style-src {STYLE}; base-uri 'none'; form-action 'none'"
# A page cannot say of itself who may frame it: browsers heed that in a header alone.
SERVED: Final = f"{POLICY}; frame-ancestors 'none'"
