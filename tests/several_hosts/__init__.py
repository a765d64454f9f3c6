"""Programs that several processes compute together, and what one process makes of them."""
