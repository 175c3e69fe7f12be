"""One session, from the lease to the release; session.py holds the order of its parts."""
