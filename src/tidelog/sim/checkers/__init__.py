"""What must hold, checked after every simulated step, by code outside of what it checks."""
