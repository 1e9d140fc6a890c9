"""A library of Mallorn as a program calls it: by mallorn-runtime alone."""

from typing import Any

from serving import Arrays, Run, serve

from mallorn_runtime import Session, empty


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """A session of the library `model`, called by inputs that it need not copy."""
    session = Session(model, threads=threads)
    aligned = {}
    for name, array in inputs.items():
        aligned[name] = empty(array.shape, str(array.dtype))
        aligned[name][...] = array

    def run() -> list[Any]:
        return list(session.run(aligned).values())

    return run


if __name__ == "__main__":
    serve(load)
