"""Training's own view of traffic, as figures and tables of a page."""
