"""What `mallorn doctor` looks at: a data directory, its database, what rows name in the artifact store."""
