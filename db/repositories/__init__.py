"""Every query of the project, one module per aggregate.

A repository is a small class over a Session. It never commits: the caller's
`db.transaction()` does. Queries for users take `owner`; the system, None, sees all rows.

To avoid deadlocks on Postgres, lock a job's row (`lock_jobs`) before its rounds, and lock
several rows of one table in the order of their keys.
"""
