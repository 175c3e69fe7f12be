"""Formats runs, sessions, accounts and plans as text and as documents."""
