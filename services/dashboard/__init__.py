"""The web page: source in web/, build output in static/, served by `static_pages`."""
