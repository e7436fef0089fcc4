"""The controller's client of the agents on hosts, and the transports that reach them."""
