"""Tables, sessions and repositories. Every query of the project lives in
mallorn.db.repositories."""
