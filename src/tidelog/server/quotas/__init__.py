"""What clients may do in a second."""
