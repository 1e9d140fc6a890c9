"""Alembic migrations; mallorn.db.migrate runs them."""
