"""What a key may do. Each scope stands for itself; `admin` stands for all."""

from collections.abc import Collection
from enum import StrEnum
from typing import Final


class Scope(StrEnum):
    """One kind of request."""

    READ = "read"  # show and list
    SUBMIT = "submit"  # upload, submit, steer and delete what one owns
    DEVICE = "device"  # show the fleet alone: for what runs beside devices
    ADMIN = "admin"  # what is everybody's: keys, cost models, devices


ALL_SCOPES: Final = tuple(Scope)
USUAL_SCOPES: Final = (Scope.READ, Scope.SUBMIT)


def allows(held: Collection[Scope], needed: Scope) -> bool:
    """Whether a key with these scopes may do what needs this one."""
    return needed in held or Scope.ADMIN in held
