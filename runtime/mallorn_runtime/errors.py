"""Errors of this package; each message says what happened, in a sentence."""


class RuntimeRefusal(Exception):
    """The base of all errors that this package raises itself."""


class LibraryRefused(RuntimeRefusal):
    """A file is no library that this machine and this version can run; it was not loaded."""


class InputRefused(RuntimeRefusal, ValueError):
    """An input has another name, type, shape or device than the library takes."""


class OptionRefused(RuntimeRefusal, ValueError):
    """An option of a session cannot be met."""
