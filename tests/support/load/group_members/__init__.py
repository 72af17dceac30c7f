"""Members of groups as programs, one file a client: `support.load.group_load` starts them, and may kill them."""
