"""The API over HTTP: its routes, its limits, its metrics, and the page."""
