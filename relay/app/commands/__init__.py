"""The commands of the command line, grouped by their purpose; each parses, calls and prints."""
