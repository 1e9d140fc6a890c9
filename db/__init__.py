"""Tables, sessions and repositories. Every query of the project lives in db.repositories."""
