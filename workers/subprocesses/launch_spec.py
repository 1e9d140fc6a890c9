"""How a parent starts a child: the module to run, its memory limit and its sandbox."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from workers.sandbox.sandbox import SandboxSpec

#: Environment variable that tells the module which sandbox level was reached.
REACHED_VARIABLE: Final = "MALLORN_CHILD_SANDBOX"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The child's command line. Every user of the host can read it, so it holds no secrets."""

    module: str
    walls: SandboxSpec
    mode: str  # a mode of Settings.sandbox
    memory_bytes: int | None = None

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_text(cls, text: str) -> Self:
        fields = json.loads(text)
        room = fields["walls"].pop("room")
        walls = SandboxSpec(room=Path(room) if room else None, **fields.pop("walls"))
        return cls(walls=walls, **fields)
