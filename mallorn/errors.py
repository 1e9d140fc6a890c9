"""The error classes of the client, by the public name `mallorn.errors`."""

from mallorn.core.errors import *  # noqa: F403
