"""Commands on results: what shows, compares, keeps and drops them."""
