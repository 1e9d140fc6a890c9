"""What a new database begins with: measurements and bases that come along with the program."""
