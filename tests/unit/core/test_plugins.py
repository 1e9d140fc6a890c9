"""What is laid at the door of a user's own code, and what is not."""

import errno
import os
import sys
from collections.abc import Callable

import pytest

from mallorn.core.check_plugin_classes import convert_plugin_errors
from mallorn.core.errors import HostFault, PluginFailed, Unavailable
from mallorn.searchers.algorithms.random import RandomSearch


class Mine(RandomSearch):
    """Passes on what happens to it."""

    def go_on(self, what: Callable[[], object]) -> None:
        what()


def starved() -> object:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def lost() -> object:
    raise Unavailable


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (lambda: 1 / 0, PluginFailed),
        (lambda: sys.exit(2), PluginFailed),
        (lambda: open("/no/such/file"), PluginFailed),  # noqa: SIM115
        (starved, HostFault),
        (lost, Unavailable),
    ],
)
def test_what_passes_through_it_is_its_own_but_for_what_the_host_refuses(
    what: Callable[[], object], told: type[Exception]
) -> None:
    with pytest.raises(told) as caught, convert_plugin_errors(("search", f"{__name__}:Mine")):
        Mine().go_on(what)
    assert type(caught.value) is told


def test_what_it_had_no_hand_in_is_none_of_its_own() -> None:
    with pytest.raises(ZeroDivisionError), convert_plugin_errors(("search", "random")):
        _ = 1 / 0
