"""The notebooks and what their cells call, inside the kernel; knows no step of training."""
