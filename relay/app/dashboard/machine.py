"""How the page shows the measurements of machines that commits carry."""

from relay.app.machine.sampling import BUSY, GPU_MEMORY, HEAT, HOST_MEMORY, POWER

DRAWN = 1e100
"""A larger number is not drawn: the span of its axis would be infinite."""
MACHINE = {
    BUSY: ("GPU busy", "busy", 1e-3),
    GPU_MEMORY: ("GPU memory", "memory", 1e-9),
    HOST_MEMORY: ("host memory", "memory", 1e-9),
    POWER: ("power", "power", 1.0),
    HEAT: ("temperature", "heat", 1.0),
}
"""Title, group and factor of the machine's measurements; shown as a share, GB, W and °C."""
