"""The parts of one session, in the order that session/session.py gives them; knows no command."""
