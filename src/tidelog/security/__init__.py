"""Who a peer is, as pure machines: the exchanges of SASL."""
