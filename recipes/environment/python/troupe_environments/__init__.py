"""Tasks and rewards of environment packages (reasoning-gym, verifiers) for Troupe's recipes."""
