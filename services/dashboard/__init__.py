"""The web page: its source is in web/, what is built of it lies in static/ and is served by pages."""
