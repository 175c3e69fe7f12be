"""Settings from files, the environment and a notebook's secrets; knows what no setting means."""
