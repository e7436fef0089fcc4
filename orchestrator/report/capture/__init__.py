"""The page about captures and traffic."""
