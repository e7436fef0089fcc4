"""Plans and runs in words, as commands print them."""
