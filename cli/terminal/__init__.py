"""What every command uses: consoles, options, bars, and how a mistake is told."""
