"""Members of groups as programs, one file a client: `support.group_load` starts them, and may kill them."""
