"""Writes the reference pages from the program itself; tests compare them."""
