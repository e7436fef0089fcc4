"""Parameter servers, and the order in which workers pull from them."""
