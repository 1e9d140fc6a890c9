"""The bench: recordings played again, bases pre-trained and judged, other people's logs, networks made up."""
