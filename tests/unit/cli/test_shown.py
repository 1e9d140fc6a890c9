"""Strangers' words at the terminal stay words."""

import pytest

from mallorn.cli.terminal.output import print_error, print_note


@pytest.mark.parametrize("moving", ["\x1b[2J", "\u202e", "\r", "\x9b31m", "\0"])
def test_what_moves_a_cursor_or_turns_a_line_around_is_written_out(
    moving: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_error(f"there is no model a{moving}b", f"mallorn show a{moving}b")
    print_note(f"a{moving}b")
    told = capsys.readouterr().err
    assert moving not in told
    assert told.count(ascii(moving)[1:-1]) == 3


def test_lines_and_brackets_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_note("[bold]a\n  b\u00e9")
    assert capsys.readouterr().err == "[bold]a\n  b\u00e9\n"
