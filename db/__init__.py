"""Tables, sessions and repositories. All queries are in mallorn.db.repositories."""
