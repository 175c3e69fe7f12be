"""Checkpoints from snapshot to deletion: written, sent, restored, kept, retired; knows no account."""
