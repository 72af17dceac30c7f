"""Twins of `tidelog.io`: time, disks and networks that a seed decides."""
