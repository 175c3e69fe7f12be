"""Commands for accounts and their owners."""
