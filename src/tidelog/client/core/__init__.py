"""The clients' machines: pure, so that they run on a virtual clock as well. No I/O, no threads, no own clock."""
