"""The dashboard: its document, the page that shows it, and a server on this machine."""
