"""The small files of a log and of a log directory, one file a module."""
