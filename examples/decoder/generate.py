"""Generate tokens with a tuned decoder; needs numpy, TVM's runtime, its library and manifest.

python generate.py decoder.so tuned/manifest.json --prompt 11,4,205 --tokens 32

Prints the tokens, the milliseconds to the first one, and the tokens per second after it.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

IDS, MASK, PLACES = "input_ids", "attention_mask", "position_ids"


class Decoder:
    """Runs a compiled decoder, and keeps its caches (outputs) as inputs of the next call."""

    def __init__(self, library: str, manifest: dict[str, Any]) -> None:
        threads = manifest["target"].get("num-cores") or os.cpu_count()
        os.environ.setdefault("TVM_NUM_THREADS", str(threads))
        os.environ.setdefault("TVM_BIND_THREADS", "0")
        import tvm  # TVM reads these variables once, at import
        from tvm import relax

        self._tensor = tvm.runtime.tensor
        self._main = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())["main"]
        dynamic, dtypes = manifest["dynamic"], {spec["name"]: spec["dtype"] for spec in manifest["inputs"]}
        self._inputs = list(dynamic["inputs"])
        self.most = dynamic["ranges"][dynamic["inputs"][IDS][1]][1]  # tokens that one call takes
        empty = {
            name: np.zeros([size if isinstance(size, int) else 0 for size in dims], dtypes[name])
            for name, dims in dynamic["inputs"].items()
        }
        self._caches = {
            name: self._tensor(value) for name, value in empty.items() if name not in (IDS, MASK, PLACES)
        }
        self._past = 0

    def scores(self, tokens: list[int]) -> Any:
        """Process these tokens and return a score for each possible next token."""
        for start in range(0, len(tokens), self.most):
            logits = self._call(tokens[start : start + self.most])
        return logits.numpy()[0, -1]

    def _call(self, tokens: list[int]) -> Any:
        length = self._past + len(tokens)
        inputs = {
            IDS: self._tensor(np.array([tokens], "int64")),
            MASK: self._tensor(np.ones((1, length), "int64")),
            PLACES: self._tensor(np.arange(self._past, length, dtype="int64")[None]),
            **self._caches,
        }
        logits, *caches = self._main(*(inputs[name] for name in self._inputs))
        self._caches = dict(zip(self._caches, caches, strict=True))
        self._past = length
        return logits


def generate(decoder: Decoder, prompt: list[int]) -> Iterator[int]:
    """Yield the most likely next token, forever; each becomes input of the next step."""
    tokens = prompt
    while True:
        token = int(decoder.scores(tokens).argmax())
        yield token
        tokens = [token]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", help="what mallorn compile or apply.py wrote")
    parser.add_argument("manifest", type=Path, help="manifest.json of the export")
    parser.add_argument("--prompt", default="1", help="tokens, with commas between them")
    parser.add_argument("--tokens", type=int, default=32, help="how many to generate")
    args = parser.parse_args()
    decoder = Decoder(args.library, json.loads(args.manifest.read_text()))
    tokens = generate(decoder, [int(token) for token in args.prompt.split(",")])
    started = time.perf_counter()
    generated = [next(tokens)]
    first = time.perf_counter()
    generated += [next(tokens) for _ in range(args.tokens - 1)]
    took = time.perf_counter() - first
    print(",".join(map(str, generated)))
    steps = f", then {len(generated[1:]) / took:.1f} tokens a second" if generated[1:] else ""
    print(f"{(first - started) * 1e3:.1f} ms to the first{steps}")


if __name__ == "__main__":
    main()
