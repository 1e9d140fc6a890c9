"""The whole service in one process, by a seed: clock, broker, devices, deaths and all.

    python -m tests.simulation --seeds 10000        # the long run, on all cores
    python -m tests.simulation --seed 4711          # one run again, with its history
    python -m tests.simulation --bugs               # how soon the planted bugs are found
    python -m tests.simulation --database postgres  # slower, on a real server

What is real: the coordinator's submit, the Celery tasks of control and workers, the planner, rounds, stages,
leases, all repositories and transactions over SQLite, or, where transactions should overlap, Postgres. What
is made up lies at seams: TVM's children, devices, the broker, and time. Read on in this order:

- `loom.py`: logical processes as fibers that hand one baton on, in an order that the seed decides;
- `kinds.py`, `weather.py`: the faults, drawn from the seed before the run begins, so that any of them can be
  left out; `sky.py`: what each does;
- `storage.py`: the database, at whose statements and commits processes die and answers get lost;
- `postgres.py`: a real server in its place, on which others run between two statements and wait for locks;
- `broker.py`, `benches.py`, `fleet.py`, `store.py`, `seams.py`: messages, devices, their tracker, the
  artifact store, and what else is put in TVM's and Celery's place;
- `versions.py`: processes of another version; `policies.py`: what strangers bring;
- `parts.py`: the processes; `owners.py`: whom they serve; `world.py`: one run of all of them;
- `history.py`: what happened; `laws.py`: what must hold of it;
- `shrinking.py`: the fewest faults that break a law; `bugs.py`: bugs that must be found.
"""
