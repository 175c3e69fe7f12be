"""Commands that look: at a run, its sessions, its stores, its plan, or into a tracker; they write no run."""
