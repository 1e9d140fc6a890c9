"""The package offers a few names, and reads what is behind them when they are asked for."""

import subprocess
import sys

import pytest

import mallorn


@pytest.mark.parametrize("name", mallorn.__all__)
def test_every_name_that_is_offered_is_there(name: str) -> None:
    assert name in dir(mallorn)
    assert getattr(mallorn, name) is not None


def test_errors_are_a_module_with_the_classes_that_the_client_raises() -> None:
    from mallorn.core import errors as core
    from mallorn.errors import MallornError, NotFound

    assert mallorn.errors.NotFound is NotFound is core.NotFound
    assert mallorn.MallornError is MallornError


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="module 'mallorn' has no attribute 'astrology'"):
        mallorn.astrology  # noqa: B018


def test_a_process_that_speaks_no_http_does_not_read_it() -> None:
    program = (
        "import sys, mallorn; print('httpx' in sys.modules); mallorn.Client; print('httpx' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "True"]
