"""What kills at random cost: of any process of an embedded stack, singly, in pairs, and of all at once.

python -m benchmarks.storm MODEL.onnx [--candidates 2000] [--real 64] [--minutes 6] [--seed 0]
    [--postgres] [--twins] [--no-kills] [--json FILE]

Jobs with the measurer `simulated` bring the volume, one more is built and timed. A blow kills all processes,
two or one, drawn from those that run. Jobs that have not ended some time after the storm do not end.
With `--postgres` the database is a server of its own that is restarted every 5 to 20 seconds, half of the
time as if its machine had failed; with `--twins` a second control runs all along.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.hosts import describe_host
from benchmarks.storm.run import Weather, storm, told
from mallorn.core.errors import MallornError

RESTART_SEC: Final = (5.0, 20.0)


def main() -> None:
    """Blow, count, and say what came of it."""
    options = _arguments()
    weather = Weather(
        seed=options.seed,
        candidates=options.candidates,
        jobs=options.jobs,
        real=options.real,
        pause_sec=options.pause_sec,
        storm_sec=60 * options.minutes,
        calm_sec=60 * options.calm_minutes,
        restart_sec=RESTART_SEC if options.postgres else None,
        twins=options.twins,
        kills=not options.no_kills,
        device_sec=options.device_sec,
    )
    try:
        with TemporaryDirectory(prefix="mallorn-storm-") as folder:
            damage = storm(weather, options.model.absolute(), Path(folder))
    except MallornError as error:
        sys.exit(str(error))
    *lines, said = told(weather, damage)
    print("\n".join(lines))
    if options.json:
        raw = {"headline": damage.headline, "weather": asdict(weather), "damage": asdict(damage)}
        options.json.write_text(json.dumps(raw | describe_host(), indent=1) + "\n")
    print(said)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--candidates", type=int, default=2000, help="trials of the made-up jobs together")
    parser.add_argument("--jobs", type=int, default=5, help="made-up jobs")
    parser.add_argument("--device-sec", type=float, default=0.05, help="of a made-up candidate")
    parser.add_argument("--real", type=int, default=64, help="trials of the job that is built and timed")
    parser.add_argument("--minutes", type=float, default=6.0, help="how long it blows")
    parser.add_argument("--calm-minutes", type=float, default=15.0, help="then so long for jobs to end")
    parser.add_argument("--pause-sec", type=float, default=6.0, help="between two blows, on average")
    parser.add_argument("--postgres", action="store_true", help="a database that comes and goes")
    parser.add_argument("--twins", action="store_true", help="a second control")
    parser.add_argument("--no-kills", action="store_true", help="nobody is killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
