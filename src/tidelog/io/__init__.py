"""The only real input and output: clock, disk, network, randomness, threads. `sim/` holds the twins."""
