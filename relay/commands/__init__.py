"""The commands of the command line, one module a subject; each body is a few lines over functions tested apart."""
