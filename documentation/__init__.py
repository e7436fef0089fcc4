"""How the documentation is made: the site, what of it is generated from code, and what of a page is tried."""
