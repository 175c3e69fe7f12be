"""A run as a page: one document of it, the page that shows it, a server on this machine; no store, no command line."""
