"""Programs that copy one topic into another in transactions, one for each client. They end with their stdin."""
