"""Producer, Consumer and Admin: the public ones are named by `tidelog` (blocking) and `tidelog.aio` (async)."""
