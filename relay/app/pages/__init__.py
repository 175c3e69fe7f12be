"""Writes the reference pages from the program itself (tests compare); knows no run and no store."""
