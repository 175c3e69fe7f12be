"""The words for people: advice, errors, durations, hand-offs and invitations; reads no store."""
