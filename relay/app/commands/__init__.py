"""The commands of the command line: each parses, calls and shows. Groups by what a person does."""
