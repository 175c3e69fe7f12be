"""Commands that show or check a run, its sessions, stores and plan, or feed a tracker; they write no run."""
