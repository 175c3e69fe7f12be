"""Kernels for Hopper in which one warp loads and two warp groups compute; same functions as the modules one up."""
