"""A world from a seed: twins of `tidelog.io` on virtual time, in which the production code runs in one process."""
