"""What a parent orders for a child that it starts: the module, its limits, and the walls around it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from workers.sandbox.sandbox import SandboxSpec

#: What the module finds in its environment: how far its walls close.
REACHED_VARIABLE: Final = "MALLORN_CHILD_SANDBOX"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """On the command line, where everybody on the host may read them: nothing of it is secret."""

    module: str
    walls: SandboxSpec
    mode: str  # of Settings.sandbox
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
