"""Text as rows of tokens."""
