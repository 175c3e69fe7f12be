"""The parts of one session, in the order that relay/session.py gives them; knows no command and no other session."""
