"""Build the documentation: the site, the pages generated from code, and the code blocks that tests try out."""
