"""The admin client, blocking and asynchronous, and what it answers with."""
