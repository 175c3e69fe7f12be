"""A run as a page: one document, the page that shows it, and a server on this machine; reads no store."""
