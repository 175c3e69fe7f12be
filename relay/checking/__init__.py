"""What is wrong with a run, a store or a machine, found and told; repairs nothing and writes nothing."""
