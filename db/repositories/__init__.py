"""Every query of the project, one file an aggregate.

A repository is a small class over a Session and never commits: the caller's `with db.transaction()` does.
User-facing queries take `owner`; None is the system itself and sees all.

Lock order, which keeps Postgres free of deadlocks: a job's row (`lock_job`) before its rounds, several rows
of one table in the order of their keys.
"""
